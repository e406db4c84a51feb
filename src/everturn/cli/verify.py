"""The command `verify`: checks stored data. (doctor.py checks settings, check.py runs the contract.)"""

from __future__ import annotations

from typing import Annotated

import typer

from everturn.backends.sqlite.errors import BAD_CHECKSUM
from everturn.cli.arguments import URL, as_url, file_of, opened, refuse_absent_file, session_in
from everturn.cli.output import clean, console, print_json
from everturn.core.numbers import count
from everturn.errors import MemoryStoreBackendError, Unsupported
from everturn.model import VerifyReport

_OR_ACCEPT = "; or, if a program other than everturn wrote to it: everturn verify --accept-pages"


def verify(
    url: URL,
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="Only this session; default: all.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON value.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept-pages", help="SQLite: first give the pages of the file new checksums.")
    ] = False,
) -> None:
    """Verify stored data: checksums, gaps, references.

    Compares every entry with its checksum. Finds gaps, a head or a snapshot that points nowhere, wrong counts, parts
    that belong to no session, and damaged pages of a SQLite file. Changes nothing. Exit code 1, and a list, if there is
    damage.

    --accept-pages gives the pages of a SQLite file new checksums, if nothing else is wrong with the file. Use it for
    files that another program wrote: a restore by litestream, VACUUM INTO, sqlite3 that closed the file after a crash.

    \b
    Examples:
      everturn verify sqlite:///memory.db
      everturn verify sqlite:///memory.db customer-42 --json
    """
    if accept:
        _accept_pages(url)
    report = _verified(url, session)
    if json:
        print_json([report])
    else:
        screen = console()
        looked = f"{count(report.sessions, 'session')}, {count(report.entries, 'entry', 'entries')}"
        screen.print(f"{looked}: {'no damage' if report.ok else count(len(report.problems), 'problem')}")
        for problem in report.problems:
            where = "the store" if problem.session_id is None else repr(problem.session_id)
            entry = "" if problem.seq is None else f", entry {problem.seq:,}"
            screen.print(f"  {where}{entry}: {clean(problem.what)}", soft_wrap=True)
        if not report.ok and file_of(as_url(url)) is not None:
            only_pages = all(BAD_CHECKSUM in problem.what for problem in report.problems)
            screen.print(f"Keep the file, and restore a backup{_OR_ACCEPT if only_pages else ''}.", soft_wrap=True)
    raise typer.Exit(0 if report.ok else 1)


def _verified(url: str, session: str | None) -> VerifyReport:
    try:
        with opened(url, for_reading=True) as store:
            if session is not None:
                session_in(store, session)
            return store.verify(session)
    except MemoryStoreBackendError as exc:
        if BAD_CHECKSUM not in str(exc):
            raise
        raise MemoryStoreBackendError(
            f"{file_of(as_url(url))} cannot be opened, so no session was verified: a page {BAD_CHECKSUM}. "
            f"Keep the file, and restore a backup{_OR_ACCEPT}",
            outcome="not_written",
        ) from exc


def _accept_pages(url: str) -> None:
    from everturn.backends.sqlite import page_checksums
    from everturn.backends.sqlite.errors import translated

    path = file_of(as_url(url))
    if path is None:
        raise Unsupported("--accept-pages is for SQLite files")
    refuse_absent_file(as_url(url))
    with translated(str(path)):
        verdict = page_checksums.accept(str(path))
    if verdict != "ok":
        raise MemoryStoreBackendError(f"{path} is damaged, and was left as it is: {verdict}", outcome="not_written")
