"""The new file is synced and renamed, and the directory is not: after a power cut the old file is back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.kit.sound.files import FileLists

CAUGHT_BY = ("power-loss-files",)


class Broken(FileLists):
    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{os.getpid()}")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(messages, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def factory(where: Path) -> Broken:
    return Broken(where)
