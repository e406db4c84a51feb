"""fcntl.lockf locks for the whole process: two instances in it both have the lock, and one turn is lost."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("instances-at-once", "threads-of-processes")


class Broken(FileLists):
    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.lock = Lock()  # for the threads of this instance, and of no other

    @contextmanager
    def locked(self, session_id: str) -> Iterator[Path]:
        path = self.path(session_id)
        with self.lock, path.with_suffix(".lock").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield path

    def load(self, path: Path) -> list[Any]:
        messages = super().load(path)
        time.sleep(0.003)  # as on a slow disk: all threads of a process have read by then
        return messages

    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{get_ident()}")
        fresh.write_text(json.dumps(messages), "utf-8")  # one write: few points to stop at
        fresh.replace(path)


def factory(where: Path) -> Broken:
    return Broken(where)


factory.share_threads = True  # type: ignore[attr-defined]
