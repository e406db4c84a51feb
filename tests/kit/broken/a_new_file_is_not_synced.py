"""The first file of a session is written without a sync; later ones are synced and renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.sound.core import encoded
from tests.kit.sound.files import FileLists

CAUGHT_BY = ("append-synced", "power-loss-files")


class Broken(FileLists):
    def store(self, path: Path, messages: list[Any]) -> None:
        if path.exists():
            super().store(path, messages)
        else:
            path.write_text(encoded(messages), "utf-8")


def factory(where: Path) -> Broken:
    return Broken(where)
