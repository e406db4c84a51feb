"""The ttl is taken and not used: personal data stays for ever."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("not-never",)


class Broken(Core):
    def expired(self, db: sqlite3.Connection, session: str) -> bool:
        return False


factory = made(Broken)
