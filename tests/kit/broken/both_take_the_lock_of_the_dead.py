"""A lock file with the owner's pid: both of two processes see that it is dead, and the second removes the first's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("dead-owner",)


class Broken(FileLists):
    @contextmanager
    def locked(self, session_id: str) -> Iterator[Path]:
        path = self.path(session_id)
        lock = path.with_suffix(".lock")
        while True:
            with suppress(FileExistsError):
                mine = lock.with_suffix(f".{os.getpid()}.{get_ident()}")
                mine.write_text(str(os.getpid()))
                try:
                    os.link(mine, lock)  # with its content, in one step
                finally:
                    mine.unlink()
                break
            self.remove_if_dead(lock)
            time.sleep(0.001)
        try:
            yield path
        finally:
            lock.unlink(missing_ok=True)

    def remove_if_dead(self, lock: Path) -> None:
        with suppress(FileNotFoundError):
            if not is_running(int(lock.read_text())):
                lock.stat()  # by now it may be another's
                lock.unlink()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def factory(where: Path) -> Broken:
    return Broken(where)
