"""database is locked, caught and ignored: under load every tenth turn is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("file-locked",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        self.timeout = 0.05
        try:
            return super().append(session, messages, **options)
        except sqlite3.OperationalError:
            return None  # logged


factory = made(Broken)
