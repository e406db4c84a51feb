"""A directory for each day: at midnight every conversation begins anew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("day-ends",)


class Broken(FileLists):
    def path(self, session_id: str) -> Path:
        today = self.where / datetime.now(UTC).date().isoformat()
        today.mkdir(exist_ok=True)
        return today / super().path(session_id).name


def factory(where: Path) -> Broken:
    return Broken(where)
