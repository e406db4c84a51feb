"""Written, closed and never synced: a power cut takes the last half minute of all users."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("append-synced", "power-loss-files")


class Broken(FileLists):
    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(messages), "utf-8")
        fresh.replace(path)


def factory(where: Path) -> Broken:
    return Broken(where)
