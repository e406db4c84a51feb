"""The command that copies a SQLite file while others write to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from everturn import private_files
from everturn.cli.arguments import URL, as_url, file_of, opened
from everturn.cli.output import console
from everturn.core.numbers import count, size
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported


def backup(
    url: URL,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not exist.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    anyway: Annotated[bool, typer.Option("--damaged-too", help="Keep the copy even if something is wrong.")] = False,
) -> None:
    """Copy a SQLite store into a file, under writers.

    The copy is the store at one moment, however many write meanwhile, and nobody waits for it. It is verified before it
    takes its name; a backup that was cut off leaves nothing behind. Only you can read it (mode 600), unless it replaces
    a file that others can read. For the other backends use their own tools, or copy.

    \b
    Examples:
      everturn backup sqlite:///memory.db backup-2026-11-15.db
      everturn backup sqlite:///memory.db latest.db --force
    """
    from rich.progress import Progress

    from everturn.backends.sqlite.backup import copy_pages

    source = file_of(as_url(url))
    if source is None:
        raise Unsupported("backup is for SQLite files; use the server's own tools, or everturn copy")
    if file.is_dir():
        raise InvalidInput("is a directory; name a file in it", path=str(file))
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no directory {file.parent}; make it first", path=str(file))
    if file.exists() and source.exists() and file.samefile(source):
        raise InvalidInput("is the store itself; name another file", path=str(file))
    if file.exists() and not file.is_file():
        raise InvalidInput("is not a plain file; name another", path=str(file))
    if file.exists() and not force:
        raise InvalidInput("exists; name another file, or --force to replace it", path=str(file))
    with opened(url):
        pass  # says what is wrong with it, and brings its schema up to date
    part = private_files.beside(file)
    try:
        with Progress(transient=True, disable=not os.isatty(1)) as bar:
            task = bar.add_task("copying", total=None)
            copy_pages(source, part, lambda done, total: bar.update(task, completed=done, total=total))
        with opened(f"sqlite:///{part}") as copied:
            report = copied.verify()
        if not report.ok and not anyway:
            raise MemoryStoreBackendError(
                f"{source} has {count(len(report.problems), 'problem')}, so its copy was not kept: everturn verify "
                "tells which, --damaged-too keeps it",
                outcome="not_written",
            )
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{part}{suffix}").unlink(missing_ok=True)
    told = f"{count(report.sessions, 'session')}, {count(report.entries, 'entry', 'entries')}"
    sound = "verified" if report.ok else f"with {count(len(report.problems), 'problem')}"
    console().print(f"{file}: {told}, {size(file.stat().st_size)}, {sound}")
