"""An error of fsync is ignored, because some network disks have none."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kit.sound.files import FileLists, sync_directory

CAUGHT_BY = ("sync-fails",)


class Broken(FileLists):
    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{os.getpid()}")
        with fresh.open("w", encoding="utf-8", newline="") as file:
            json.dump(messages, file, ensure_ascii=False, allow_nan=False)
            file.flush()
            with suppress(OSError):
                os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(path.parent)


def factory(where: Path) -> Broken:
    return Broken(where)
