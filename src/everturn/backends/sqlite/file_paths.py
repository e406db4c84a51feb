"""Paths of SQLite files: checked before use, and created with the right mode."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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


def create(path: str, mode: int) -> None:
    """Create the file with this mode, whatever the umask; leave one that exists. Its -wal and -shm get the same."""
    with (
        suppress(FileExistsError),
        child_processes.lock,
    ):  # one thread at a time: closing a file drops all locks that this process has on it
        os.close(private_files.create(os.path.realpath(path), mode))
