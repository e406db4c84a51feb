"""A connection for each thread, in a dict that nobody clears."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-of-threads",)


class Broken(Core):
    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        self.of_threads: dict[threading.Thread, sqlite3.Connection] = {}
        super().__init__(where, ttl, timeout)

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        me = threading.current_thread()
        if me not in self.of_threads:
            self.of_threads[me] = sqlite3.connect(
                self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False
            )
        yield self.of_threads[me]


factory = made(Broken)
