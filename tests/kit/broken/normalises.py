"""NFC on the way in: the user's file name is not the file's name any more."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("unicode-forms",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": altered(one["content"])} for one in messages])


def altered(content: str) -> Any:
    return unicodedata.normalize("NFC", content)


factory = made(Broken)
