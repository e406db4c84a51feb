"""A known key is a retry, whatever comes with it: new turns are dropped in silence."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("key-with-other-content",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        return super().known(db, session, key, [])


factory = made(Broken)
