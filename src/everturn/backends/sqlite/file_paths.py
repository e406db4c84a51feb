"""Paths of SQLite files: checked before use, created with the right mode, and opened for reading alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from everturn import private_files
from everturn.backends.sqlite import child_processes
from everturn.errors import InvalidInput


def refuse_unusable(path: str) -> None:
    """Raise InvalidInput for a path that cannot be a file: a directory, or in a directory that does not exist."""
    if Path(path).is_dir():
        raise InvalidInput("is a directory; name a file", path=path)
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InvalidInput(f"the directory {folder} does not exist; create it first", path=path)


def to_look(path: str) -> tuple[int, str]:
    """Choose flags and name to read a file that may be on a read-only disk, or belong to somebody else."""
    look = apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI
    name = f"file:{quote(path)}"
    if os.access(path, os.W_OK) and os.access(Path(path).absolute().parent, os.W_OK):
        # It could be written, so read it as any reader does: the last to close it leaves no files beside it.
        return look | apsw.SQLITE_OPEN_READWRITE, name
    if not Path(f"{path}-wal").exists() and not os.access(Path(path).absolute().parent, os.W_OK):
        name += "?immutable=1"  # nobody writes to it, and the memory that readers share could not be created
    return look | apsw.SQLITE_OPEN_READONLY, name


def create(path: str, mode: int) -> None:
    """Create the file with this mode, whatever the umask; leave one that exists. Its -wal and -shm get the same."""
    with (
        suppress(FileExistsError),
        child_processes.lock,
    ):  # one thread at a time: closing a file drops all locks that this process has on it
        os.close(private_files.create(os.path.realpath(path), mode))
