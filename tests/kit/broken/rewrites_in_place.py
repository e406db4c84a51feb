"""A JSON file rewritten in place on a full disk: the old history is cut off, the new one not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("disk-full",)


class Broken(FileLists):
    def store(self, path: Path, messages: list[Any]) -> None:
        path.write_text(json.dumps(messages), "utf-8")

    def load(self, path: Path) -> list[Any]:
        try:
            return super().load(path)
        except ValueError:
            return []  # it was empty


def factory(where: Path) -> Broken:
    return Broken(where)
