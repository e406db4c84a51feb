"""Data is known to the workers of one parent process, and to no cron job."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("plain-process",)


class Broken(Core):
    def __init__(self, where: Path, *options: float | None) -> None:
        family = where / f"workers of {os.getppid()}"
        family.mkdir(exist_ok=True)
        super().__init__(family, *options)


factory = made(Broken)
