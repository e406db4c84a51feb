"""Creates files for conversations: only their owner can read them, whatever the umask, and no link is followed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from everturn.errors import InvalidInput

MODE = 0o600
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def file_mode(value: object) -> int:
    """Read the option `file_mode`: an int (0o660), or octal digits ("660"). The owner can always read and write.

    Raises InvalidInput.
    """
    try:
        mode = int(value, 8) if isinstance(value, str) else int(value)  # type: ignore[call-overload]  # int says so
    except (TypeError, ValueError):
        mode = -1
    if isinstance(value, bool) or not 0 <= mode <= 0o666 or mode & 0o600 != 0o600 or mode & 0o111:
        raise InvalidInput(f"is a mode such as 0o600 or 0o660, in a URL 0660, not {value!r}", path="file_mode")
    return mode


def create(path: str | Path, mode: int = MODE) -> int:
    """Create a file with exactly this mode, and return its descriptor. Raises FileExistsError, also for a link."""
    created = os.open(path, _NEW, mode)
    if hasattr(os, "fchmod"):
        os.fchmod(created, mode)  # the umask may have taken away bits that the mode gives to a group
    return created


@contextmanager
def written(path: Path, mode: int = MODE) -> Iterator[IO[bytes]]:
    """Open a file to write. It gets its name when the block ends; if the block fails, nothing is left behind.

    Until then it has a name that nobody can guess, in the same folder. A file that has the name already is replaced,
    and its mode is kept.
    """
    if path.is_file() and not path.is_symlink():
        mode = path.stat().st_mode & 0o777
    part = beside(path)
    try:
        with os.fdopen(create(part, mode), "wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """Make a name in the same folder that nobody can guess."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
