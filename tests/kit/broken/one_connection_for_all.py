"""One connection for the whole module: the first to close it closes it for all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists

_shared: dict[Path, sqlite3.Connection] = {}

CAUGHT_BY = ("second-instance",)


class Broken(Core):
    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        if self.path not in _shared:
            _shared[self.path] = sqlite3.connect(self.path, isolation_level=None)
        yield _shared[self.path]


class Closing(Lists):
    def close(self) -> None:
        _shared[self.core.path].close()


def factory(where: Path) -> Closing:
    return Closing(Broken(where))
