"""Session and key are one text, with a colon between: keys of one session are those of another that ends like them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("session-and-key",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        return super().known(db, "", f"{session}:{key}", messages)


factory = made(Broken)
