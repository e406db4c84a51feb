"""Keys are cut to 64 characters, the width of a column: a key that begins like another one is taken for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keys-are-exact",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        return super().known(db, session, key[:64], messages)


factory = made(Broken)
