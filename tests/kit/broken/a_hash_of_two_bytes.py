"""A file for each four digits of a hash of the session's name: among a thousand sessions some share one."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("isolation-of-many",)


class Broken(FileLists):
    def path(self, session_id: str) -> Path:
        return self.where / f"{sha256(session_id.encode()).hexdigest()[:4]}.json"


def factory(where: Path) -> Broken:
    return Broken(where)
