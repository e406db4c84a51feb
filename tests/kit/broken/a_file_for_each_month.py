"""A file for each session and month: on the first of the next one, every conversation begins anew."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("day-ends",)


class Broken(FileLists):
    def path(self, session_id: str) -> Path:
        path = super().path(session_id)
        return path.with_name(time.strftime("%Y-%m-") + path.name)


def factory(where: Path) -> Broken:
    return Broken(where)
