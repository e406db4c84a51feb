"""The commands one trusts a store by: verify. (doctor.py looks at settings, check.py runs the contract.)"""

from __future__ import annotations

from typing import Annotated

import typer

from everturn.cli.opening import URL, opened, session_in
from everturn.cli.output import clean, console, print_json
from everturn.words import count


def verify(
    url: URL,
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="Only this one; else everything.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON value: the report.")] = False,
) -> None:
    """Check at rest all that can be checked.

    Every entry against its checksum; gaps, heads beyond the log, dangling snapshots, counts that do not add up, parts
    that belong to no session. Changes nothing. Exit code 1 and a list if something is wrong.

    \b
    Examples:
      everturn verify sqlite:///memory.db
      everturn verify sqlite:///memory.db customer-42 --json
    """
    with opened(url) as store:
        if session is not None:
            session_in(store, session)
        report = store.verify(session)
    if json:
        print_json([report])
    else:
        screen = console()
        looked = f"{count(report.sessions, 'session')}, {count(report.entries, 'entry', 'entries')}"
        screen.print(f"{looked}: {'all sound' if report.ok else count(len(report.problems), 'problem')}")
        for problem in report.problems:
            where = "the store" if problem.session_id is None else repr(problem.session_id)
            entry = "" if problem.seq is None else f", entry {problem.seq:,}"
            screen.print(f"  {where}{entry}: {clean(problem.what)}", soft_wrap=True)
    raise typer.Exit(0 if report.ok else 1)
