"""What the kit does to a target's files behind its back: locks, garbage, cuts.

SQLite files are touched by SQLite in a helper process only: two SQLite libraries in one process break each other's
locks, and target code may run in any process but this one and its helpers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_MAGIC = b"SQLite format 3\0"
_HOLD = """
import sys
from everturn.backends.sqlite import page_checksums
held = []
for path in sys.argv[1:]:
    db = page_checksums.connect(path)
    db.set_busy_timeout(10_000)
    db.execute("BEGIN IMMEDIATE")
    held.append(db)
print("held", flush=True)
sys.stdin.readline()
for db in held:
    db.execute("ROLLBACK")
    db.close()
print("released", flush=True)
"""
_EMPTY_WAL = """
import sys
from everturn.backends.sqlite import page_checksums
for path in sys.argv[1:]:
    db = page_checksums.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
"""


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Locks:
    """The write locks of SQLite files, in the hands of another process until `release` or the end of the block."""

    def __init__(self, databases: Sequence[Path]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-c", _HOLD, *map(str, databases)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout is None or self._process.stdout.readline() != "held\n":
            self.release()
            raise RuntimeError("the helper process could not lock the file")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the locks back. Does nothing the second time."""
        if self._process.poll() is None:
            self._process.communicate("\n", timeout=30)


def settle(files: Iterable[Path]) -> None:
    """Move what is in write-ahead logs into their databases: garbage in a log would be taken for its end."""
    databases = [str(path) for path in files if is_sqlite(path) and Path(f"{path}-wal").exists()]
    if databases:
        subprocess.run([sys.executable, "-c", _EMPTY_WAL, *databases], check=True, timeout=60)  # noqa: S603 - our own script


def overwrite(files: Sequence[Path], words: bytes, byte: bytes) -> bool:
    """Put so many of a byte in place of the words, wherever they are. False if they are nowhere."""
    settle(files)
    found = False
    for path in files:
        if path.exists() and words in (content := path.read_bytes()):
            path.write_bytes(content.replace(words, byte * len(words)))
            found = True
    return found


def cut(files: Sequence[Path], words: bytes) -> bool:
    """Cut the files that hold the words in half. False if they are nowhere."""
    settle(files)
    found = False
    for path in files:
        if path.exists() and words in (content := path.read_bytes()):
            path.write_bytes(content[: len(content) // 2])
            found = True
    return found
