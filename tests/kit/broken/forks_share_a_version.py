"""A checkpointer keeps messages by their version, which two checkpoints that were made from one have both."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-forks",)


class Broken(LangGraph):
    def store(self, thread: str, row: Any, parent: str | None) -> None:
        with self.core.change() as db:
            self.core.begin(db, thread)
            version = row["checkpoint"]["channel_versions"]["messages"]
            sql = (
                "SELECT body FROM messages WHERE session = ? "
                "AND json_extract(body, '$.checkpoint.channel_versions.messages') = ?"
            )
            known = db.execute(sql, (thread, version)).fetchone()
            if known is not None:
                row["checkpoint"]["channel_values"]["messages"] = json.loads(known[0])["checkpoint"]["channel_values"][
                    "messages"
                ]
            self.core.put(db, thread, [row])
            self.core.touch(db, thread)


factory = made(Core, Broken)
