"""A lock file that is taken over after 30 seconds, and no fence: who had it before goes on, and writes its old list."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("paused-in-append", "paused-in-change")
SECONDS = 30.0


class Broken(FileLists):
    @contextmanager
    def locked(self, session_id: str) -> Iterator[Path]:
        path = self.path(session_id)
        lock = path.with_suffix(".lock")
        while not self.took(lock):
            time.sleep(0.001)
        try:
            yield path
        finally:
            lock.unlink(missing_ok=True)

    def took(self, lock: Path) -> bool:
        try:
            with lock.open("x") as file:
                file.write(str(time.time() + SECONDS))
        except FileExistsError:
            return self.took_over(lock)
        return True

    def took_over(self, lock: Path) -> bool:
        try:
            until = float(lock.read_text() or "inf")
        except FileNotFoundError:
            return False
        if until > time.time():
            return False
        mine = lock.with_suffix(f".lock.{os.getpid()}")
        mine.write_text(str(time.time() + SECONDS))
        mine.replace(lock)
        return True


def factory(where: Path) -> Broken:
    return Broken(where)
