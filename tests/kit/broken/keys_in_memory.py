"""Keys are remembered in the instance: the worker that timed out is replaced, and its successor stores again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keys-persist",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        self.keys = getattr(self, "keys", set())
        known = (session, key) in self.keys
        self.keys.add((session, key))
        return known


factory = made(Broken)
