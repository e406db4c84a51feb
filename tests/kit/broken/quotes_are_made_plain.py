"""Typographic quotes become plain ones, 'for the model': what was quoted is not what was said."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("odd-code-points",)
PLAIN = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": plain(one["content"])} for one in messages])


def plain(content: Any) -> Any:
    return content.translate(PLAIN) if isinstance(content, str) else content


factory = made(Broken)
