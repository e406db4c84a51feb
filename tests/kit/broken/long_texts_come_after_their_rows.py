"""Texts over 8 KiB are files: written when their row is committed, and deleted with any row that names them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("large-message-at-once", "equal-sessions")
LEAST = 8192


class Broken(Core):
    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        super().__init__(where, ttl, timeout)
        self.folder = where

    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        receipt = super().append(session, messages, **options)
        for one in messages:
            if is_long(one):
                (self.folder / digest(one["content"])).write_bytes(one["content"].encode())
        return receipt

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        short = [{**one, "content": {"file": digest(one["content"])}} if is_long(one) else one for one in messages]
        super().put(db, session, short)

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        found = super().load(db, session)
        for one in found:
            if isinstance(one["content"], dict):
                one["content"] = (self.folder / one["content"]["file"]).read_bytes().decode()
        return found

    def clear(self, session: str) -> None:
        with self.change() as db:
            for (body,) in db.execute("SELECT body FROM messages WHERE session = ?", (session,)).fetchall():
                if isinstance(content := json.loads(body)["content"], dict):
                    (self.folder / content["file"]).unlink(missing_ok=True)
            self.begin(db, session)
            self.set_all(db, session, [])
            self.touch(db, session)


def is_long(message: Any) -> bool:
    return isinstance(message["content"], str) and len(message["content"]) >= LEAST


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


factory = made(Broken)
