"""The command `backup`: copies a SQLite file while others write to it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from everturn import private_files
from everturn.cli.arguments import URL, as_url, file_of, opened, refuse_absent_file
from everturn.cli.output import console
from everturn.core.numbers import count, size
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported
from everturn.model import VerifyReport


def backup(
    url: URL,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    anyway: Annotated[bool, typer.Option("--damaged-too", help="Keep the copy even if verify finds damage.")] = False,
) -> None:
    """Copy a SQLite store into a file while it is in use.

    The copy is the store at one moment. Writers go on meanwhile and do not wait. Nothing is written to the store: a
    file of an earlier everturn stays one, and so does its copy. The copy is verified before it gets its name; an
    interrupted backup leaves no file. Only you can read the copy (mode 600), unless it replaces a file
    that others can read. For other backends use the tools of the server, or everturn copy.

    \b
    Examples:
      everturn backup sqlite:///memory.db backup-2026-11-15.db
      everturn backup sqlite:///memory.db latest.db --force
    """
    from rich.progress import Progress

    from everturn.backends.sqlite.backup import copy_pages, is_of_earlier_version

    source = file_of(as_url(url))
    if source is None:
        raise Unsupported("backup is for SQLite files; use the server's own tools, or everturn copy")
    if file.is_dir():
        raise InvalidInput("is a directory; give a file in it", path=str(file))
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no directory {file.parent}; make it first", path=str(file))
    if file.exists() and source.exists() and file.samefile(source):
        raise InvalidInput("is the store itself; give another file", path=str(file))
    if file.exists() and not file.is_file():
        raise InvalidInput("is not a plain file; give another", path=str(file))
    if file.exists() and not force:
        raise InvalidInput("exists; give another file, or --force to replace it", path=str(file))
    refuse_absent_file(as_url(url))
    is_earlier = is_of_earlier_version(source)
    if not is_earlier:
        with opened(url, for_reading=True):
            pass  # raises if it cannot be opened
    part = private_files.beside(file)
    try:
        with Progress(transient=True, disable=not os.isatty(1)) as bar:
            task = bar.add_task("copying", total=None)
            copy_pages(source, part, lambda done, total: bar.update(task, completed=done, total=total))
        report = _verified_anew(part) if is_earlier else _verified(part)
        if not report.ok and not anyway:
            raise MemoryStoreBackendError(
                f"{source} has {count(len(report.problems), 'problem')}, so its copy was not kept: everturn verify "
                "lists them, --damaged-too keeps the copy",
                outcome="not_written",
            )
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    told = f"{count(report.sessions, 'session')}, {count(report.entries, 'entry', 'entries')}"
    sound = "verified" if report.ok else f"with {count(len(report.problems), 'problem')}"
    console().print(f"{file}: {told}, {size(file.stat().st_size)}, {sound}")


def _verified(copy: Path) -> VerifyReport:
    with opened(f"sqlite:///{copy}", for_reading=True) as copied:
        return copied.verify()


def _verified_anew(copy: Path) -> VerifyReport:
    """Verify a copy of the copy, which is migrated: this version reads no other form."""
    migrated = copy.with_name(f"{copy.name}.migrated")
    try:
        os.close(private_files.create(migrated))
        shutil.copyfile(copy, migrated)
        with opened(f"sqlite:///{migrated}") as copied:
            return copied.verify()
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{migrated}{suffix}").unlink(missing_ok=True)
