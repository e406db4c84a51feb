"""A history per file, named after the session: '../escaped' is a session id, too."""

from __future__ import annotations

from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("ids-stay-inside",)


class Broken(FileLists):
    def path(self, session_id: str) -> Path:
        path = self.where / f"{session_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def factory(where: Path) -> Broken:
    return Broken(where)
