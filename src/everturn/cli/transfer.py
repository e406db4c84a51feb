"""Commands that copy sessions: export, import, copy. (backup.py copies a whole file.)"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from everturn import private_files
from everturn.cli.arguments import URL, opened, session_in
from everturn.cli.output import clean, console, print_json
from everturn.core.numbers import count
from everturn.errors import InvalidInput
from everturn.model import CopyProgress, CopyReport

JSON = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def export(
    url: URL,
    sessions: Annotated[list[str] | None, typer.Argument(metavar="SESSION", help="The sessions; default: all.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; default: standard output.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="All sessions that begin with this.")] = "",
) -> None:
    """Write sessions as lines of JSON.

    Writes everything of each session: history, branches, snapshots, undo, keys, and the rest of its TTL. A session is
    read as of one moment, and verified before it is written. Only you can read the file (mode 600), unless it replaces
    a file that others can read. The format of the lines: everturn docs storage.

    \b
    Examples:
      everturn export sqlite:///memory.db > memory.jsonl
      everturn export redis://localhost customer-42 customer-43 -o two.jsonl
      everturn export sqlite:///memory.db | gzip > memory.jsonl.gz
      everturn export postgresql://host/db --prefix customer-42/ -o customer-42.jsonl
    """
    from everturn.transfer.jsonl import write_sessions

    if output is not None and output.is_dir():
        raise InvalidInput("is a directory; give a file in it", path=str(output))
    if prefix and sessions:
        raise InvalidInput("give sessions or a prefix, not both", path="--prefix")
    with opened(url, for_reading=True) as store:
        for name in sessions or ():
            session_in(store, name)
        if output is None:
            written = write_sessions(store, sessions or None, sys.stdout.buffer.write, prefix)
            sys.stdout.buffer.flush()
        else:
            with private_files.written(output) as file:
                written = write_sessions(store, sessions or None, file.write, prefix)
    sys.stderr.write(f"{count(written, 'session')} written\n")


def import_(
    url: URL,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="An export; default: standard input.")] = None,
    form: Annotated[
        str | None, typer.Option("--from", help="Import a SQLite file of openai-agents or langchain.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="With --from: the table of messages, if it is not the default.")
    ] = None,
    json: JSON = False,
) -> None:
    """Import sessions from an export or another store.

    The whole file is verified before anything is written. A new session is imported, an equal one is skipped, an
    earlier state of it is extended. Anything else is a conflict: it is reported and left as it is (exit code 1).

    With --from, the file belongs to OpenAI Agents' SQLiteSession or LangChain's SQLChatMessageHistory. It is only read.
    The imported sessions can be used through the adapter of the framework.

    \b
    Examples:
      everturn import sqlite:///other.db memory.jsonl
      gunzip -c memory.jsonl.gz | everturn import redis://localhost
      everturn import sqlite:///memory.db conversations.db --from openai-agents
      everturn import sqlite:///memory.db chat.db --from langchain --table message_store
    """
    from everturn.cli import foreign
    from everturn.transfer.jsonl import read_sessions

    if form is not None and form not in foreign.FORMATS:
        raise InvalidInput(f"is {' or '.join(foreign.FORMATS)}, not {form!r}", path="--from")
    if form is not None and file is None:
        raise InvalidInput("needs a file to read", path="--from")
    with opened(url, create=True) as store, _bar() as tell:
        if form is not None and file is not None:
            report = foreign.import_file(store, form, file, table, lambda name, done: tell(_step(name, done)))
        elif file is None:
            report = read_sessions(sys.stdin.buffer, store, tell)
        else:
            with file.open("rb") as lines:
                report = read_sessions(lines, store, tell)
    _print(report, json=json)


def copy(
    source: URL,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The URL of the store to copy into.")],
    sessions: Annotated[list[str] | None, typer.Argument(metavar="SESSION", help="The sessions; default: all.")] = None,
    json: JSON = False,
) -> None:
    """Copy sessions from one store to another.

    The stores may be of different backends, and in use. Each session is copied whole, in one step, and compared
    afterwards. An interrupted copy can be run again, and goes on; sessions that are equal are skipped. Conflicts are
    reported and left as they are (exit code 1).

    \b
    Examples:
      everturn copy sqlite:///memory.db redis://localhost
      everturn copy redis://localhost postgresql://host/db customer-42
    """
    import everturn

    with opened(source, for_reading=True) as here, opened(target, create=True) as there, _bar() as tell:
        for name in sessions or ():
            session_in(here, name)
        report = everturn.copy(here, there, sessions or None, tell)
    _print(report, json=json)


def _step(session_id: str, done: int) -> CopyProgress:
    return CopyProgress(session_id, None, None, 0, done, None)


@contextmanager
def _bar() -> Iterator[Callable[[CopyProgress], None]]:
    """A progress bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not os.isatty(2)) as progress:
        task = progress.add_task("", total=None)

        def tell(step: CopyProgress) -> None:
            told = f"{step.sessions:,} sessions; {clean(step.session_id)[:40]}, {step.entries:,} entries"
            progress.update(task, description=told, completed=step.sessions, total=step.total)

        yield tell


def _print(report: CopyReport, *, json: bool) -> None:
    if json:
        print_json([report])
    else:
        screen = console()
        numbers = [(report.imported, "imported"), (report.extended, "extended"), (report.skipped, "already there")]
        numbers += [(report.absent, "expired or erased meanwhile"), (report.behind, "changed meanwhile: copy again")]
        told = ", ".join(f"{number:,} {what}" for number, what in numbers if number) or "nothing to do"
        screen.print(told + (f"; {report.verified:,} compared and equal" if report.verified else ""))
        for session_id, why in report.conflicts:
            screen.print(f"conflict: {session_id!r}: {clean(why)}", soft_wrap=True)
    raise typer.Exit(0 if report.ok else 1)
