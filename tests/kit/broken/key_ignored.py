"""openai-agents-python#1699: the key is taken and not looked at, so a retry stores again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keyed-retry",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        return False


factory = made(Broken)
