"""A lock file for each of 64 hashes of ids: Python's hash of a text is another one in every interpreter."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("started-apart",)


class Broken(FileLists):
    @contextmanager
    def locked(self, session_id: str) -> Iterator[Path]:
        with (self.where / f"lock-{hash(session_id) % 64}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.path(session_id)


def factory(where: Path) -> Broken:
    return Broken(where)
