"""Faults in a target's files: locks, garbage, cuts.

SQLite opens them only in a helper process: two SQLite libraries in one process break each other's locks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_MAGIC = b"SQLite format 3\0"
_SHARED_MEMORY = "-shm"  # of SQLite: no part of its data
_DAMAGE = 16  # bytes
_CLOSE = 8
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
    """The write locks of SQLite files, held by another process until `release` or the end of the block."""

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
        """Release the locks. Does nothing the second time."""
        if self._process.poll() is None:
            self._process.communicate("\n", timeout=30)


def settle(files: Iterable[Path]) -> None:
    """Move write-ahead logs into their databases, because garbage in a log would count as its end."""
    databases = [str(path) for path in files if is_sqlite(path) and Path(f"{path}-wal").exists()]
    if databases:
        subprocess.run([sys.executable, "-c", _EMPTY_WAL, *databases], check=True, timeout=60)  # noqa: S603 - our own script


def overwrite(files: Sequence[Path], words: bytes, byte: bytes) -> bool:
    """Overwrite these words with a byte, wherever they are. Returns False if no file has them."""
    settle(files)
    found = False
    for path in files:
        if path.exists() and words in (content := path.read_bytes()):
            path.write_bytes(content.replace(words, byte * len(words)))
            found = True
    return found


def cut(files: Sequence[Path], words: bytes) -> bool:
    """Cut the files that hold these words in half. Returns False if no file has them."""
    settle(files)
    found = False
    for path in files:
        if path.exists() and words in (content := path.read_bytes()):
            path.write_bytes(content[: len(content) // 2])
            found = True
    return found


def contents(files: Iterable[Path]) -> dict[Path, bytes]:
    """Read files as they are now, to find later what has changed in them."""
    return {path: path.read_bytes() for path in files}


def damage(earlier: dict[Path, bytes], files: Sequence[Path], part: float) -> str:
    """Overwrite 16 bytes of those that are new since `earlier`, at this part of the longest stretch of them. Returns
    the file's name; empty if there is none."""
    settle(files)
    longest: tuple[int, int, Path] | None = None
    for path, (start, end) in _changes(earlier, files):
        if longest is None or end - start > longest[0]:
            longest = end - start, start, path
    if longest is None:
        return ""
    length, start, path = longest
    content = bytearray(path.read_bytes())
    at = start + int(length * part)
    content[at : at + _DAMAGE] = bytes(byte ^ 0xFF for byte in content[at : at + _DAMAGE])
    path.write_bytes(content)
    return path.name


def cut_changed(earlier: dict[Path, bytes], files: Sequence[Path]) -> bool:
    """Cut in half the files that are not as they were earlier. Returns False if there is none."""
    settle(files)
    changed = dict.fromkeys(path for path, _ in _changes(earlier, files))
    for path in changed:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    return bool(changed)


def _changes(earlier: dict[Path, bytes], files: Sequence[Path]) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield the stretches of bytes that have changed, in each file that holds data. Bytes between two changes that are
    close count as changed: some happen to be as before."""
    for path in files:
        if not path.exists() or path.name.endswith(_SHARED_MEMORY):
            continue
        before, after = earlier.get(path, b""), path.read_bytes()
        start = last = -1
        for at in range(len(after)):
            if at < len(before) and before[at] == after[at]:
                continue
            if start >= 0 and at - last > _CLOSE:
                yield path, (start, last + 1)
                start = at
            start, last = (at if start < 0 else start), at
        if start >= 0:
            yield path, (start, last + 1)
