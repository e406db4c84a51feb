"""A history is one text, "USER: ..." and "ASSISTANT: ...", and is cut at these words when it is read."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("looks-like-history",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        messages = super().load(db, session)
        if any(not isinstance(one["content"], str) or len(one) > 2 for one in messages):
            return messages
        text = "".join(f"\n\n{one['role'].upper()}: {one['content']}" for one in messages)
        parts = re.split(r"\n\n(USER|ASSISTANT|SYSTEM): ", text)[1:]
        return [{"role": role.lower(), "content": said} for role, said in zip(parts[::2], parts[1::2], strict=True)]


factory = made(Broken)
