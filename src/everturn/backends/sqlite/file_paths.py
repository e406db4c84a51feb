"""Where a SQLite file is: whether there can be one, and how it is created, or named to be read alone."""

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
    """Raise InvalidInput for a path at which there can be no file."""
    if Path(path).is_dir():
        raise InvalidInput("is a directory; name a file", path=path)
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InvalidInput(f"the directory {folder} does not exist; create it first", path=path)


def to_look(path: str) -> tuple[int, str]:
    """The flags and the name to read a file by, which may be on a read-only disk or belong to somebody else."""
    look = apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI
    name = f"file:{quote(path)}"
    if os.access(path, os.W_OK) and os.access(Path(path).absolute().parent, os.W_OK):
        # Where it could be written, as any other reader: the last to close it leaves no files beside it.
        return look | apsw.SQLITE_OPEN_READWRITE, name
    if not Path(f"{path}-wal").exists() and not os.access(Path(path).absolute().parent, os.W_OK):
        name += "?immutable=1"  # nobody writes to it, and the memory that readers share could not be created
    return look | apsw.SQLITE_OPEN_READONLY, name


def create(path: str, mode: int) -> None:
    """Create the file if it is not there, with this mode under any umask. SQLite gives the files beside it the same."""
    with (
        suppress(FileExistsError),
        child_processes.lock,
    ):  # one thread at a time: closing drops the locks of others here
        os.close(private_files.create(os.path.realpath(path), mode))
