"""synchronous=NORMAL: a write-ahead log that is not synced loses acknowledged rows in a power cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import everturn

CAUGHT_BY = ("power-loss",)


def factory(where: Path, vfs: str | None = None) -> Any:
    return everturn.open(f"sqlite:///{where}/memory.db", synchronous="NORMAL", vfs=vfs)
