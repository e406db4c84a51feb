"""What looks like a tag is taken out before it is stored: code that a user asks about has holes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("looks-like-markup",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": without_tags(one["content"])} for one in messages])


def without_tags(content: Any) -> Any:
    return re.sub(r"</?[a-z]\w*>", "", content) if isinstance(content, str) else content


factory = made(Broken)
