"""Metadata is merged into the message that is stored: a role in it becomes the message's role."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("metadata-names",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [{**message, **(message.get("metadata") or {})} for message in messages])


factory = made(Broken)
