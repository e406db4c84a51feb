"""The key is looked up in one transaction and the turn stored in another: both retries pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keyed-at-once",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], *, key: str | None = None, **options: Any) -> Any:
        if key is not None:
            with self.view() as db:
                row = db.execute("SELECT 1 FROM keys WHERE session = ? AND key = ?", (session, key)).fetchone()
            if row:
                return None
            time.sleep(0.001)  # the model's answer
            with self.change() as db:
                db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, '')", (session, key))
        return super().append(session, messages, **options)


factory = made(Broken)
