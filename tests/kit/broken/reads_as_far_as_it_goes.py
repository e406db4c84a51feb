"""A line per message, read as far as lines can be decoded: half a file is half a history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("half-a-file",)


class Broken(FileLists):
    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.locked(session_id) as path, path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(message) + "\n" for message in messages))

    def load(self, path: Path) -> list[Any]:
        found = []
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found


def factory(where: Path) -> Broken:
    return Broken(where)
