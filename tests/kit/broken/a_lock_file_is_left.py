"""A lock file that nobody removes after a crash: no worker starts any more."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists

CAUGHT_BY = ("left-by-a-kill",)


class Closing(Lists):
    def close(self) -> None:
        (self.core.path.parent / f"in use by {os.getpid()}").unlink(missing_ok=True)


def factory(where: Path) -> Closing:
    for lock in where.glob("in use by *"):
        if not Path(f"/proc/{lock.name.split()[-1]}").exists():
            raise RuntimeError(f"{lock} is there: the store is in use, or was not closed")
    (where / f"in use by {os.getpid()}").touch()
    return Closing(Core(where))
