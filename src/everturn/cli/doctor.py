"""The command `doctor`: examines the settings of a store, and prints risks and fixes."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from everturn.backend import drive
from everturn.backends._shared.server_warnings import Examination
from everturn.cli.arguments import URL, opened
from everturn.cli.output import clean, console, print_json
from everturn.core.masking import masked_url
from everturn.core.numbers import count
from everturn.errors import Unsupported
from everturn.store.sync import operations_of


def doctor(
    url: URL,
    json: Annotated[bool, typer.Option("--json", help="Print facts and findings as one JSON value.")] = False,
) -> None:
    """Check the settings of a store for risks.

    SQLite: the library, journal and sync, the file system, the WAL and readers that keep it from shrinking. Redis:
    persistence, eviction, memory, replicas, version. PostgreSQL: fsync, synchronous_commit, connections, bloat.
    DynamoDB: billing, point-in-time recovery, TTL attribute, indexes, replicas, permissions. Each finding has its risk
    and a fix to paste. With --json also its health: reachable, writable, disk left, WAL, replicas, the oldest lease,
    effects in doubt. Exit code 1 if there are findings.

    \b
    Examples:
      everturn doctor sqlite:///memory.db
      everturn doctor redis://localhost --json | jq .findings
    """
    quiet: dict[str, Any] = {"warnings": False} if url.startswith(("redis", "postgres")) else {}
    with opened(url, for_reading=True, **quiet) as store:
        health = store.health()
        backend: Any = operations_of(store).backend
        if not hasattr(backend, "examine"):
            raise Unsupported(f"the backend of {masked_url(url)!r} has nothing for doctor to examine")
        found: Examination = drive(backend.examine(time.monotonic() + operations_of(store).settings.timeout))
    if json:
        print_json([{"health": health, "facts": found.facts, "findings": found.findings}])
    else:
        _print(found)
        for problem in health.problems:
            console().print(Text(f"! {clean(problem)}", style="bold red"), soft_wrap=True)
        console().print(
            f"Settings only; the data is checked by: everturn verify {clean(masked_url(url))}", soft_wrap=True
        )
    raise typer.Exit(1 if found.findings or not health.ok else 0)


def _print(found: Examination) -> None:
    screen = console()
    table = Table.grid(padding=(0, 2))
    for name, value in found.facts:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    screen.print(table)
    screen.print()
    for finding in found.findings:
        screen.print(Text(f"! {clean(finding.where)}: {clean(finding.what)}", style="bold red"), soft_wrap=True)
        screen.print(Text(f"  risk: {clean(finding.risk)}"), soft_wrap=True)
        screen.print(Text(f"  fix:  {clean(finding.fix)}", style="green"), soft_wrap=True)
    screen.print(count(len(found.findings), "finding") if found.findings else Text("no findings", style="green"))
