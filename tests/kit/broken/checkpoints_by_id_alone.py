"""A checkpointer looks a checkpoint up by its id alone: any thread can get it."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-of-another-thread",)


class Broken(LangGraph):
    def get_tuple(self, config: Any) -> Any:
        checkpoint_id = config["configurable"].get("checkpoint_id")
        if checkpoint_id is None:
            return super().get_tuple(config)
        with self.core.view() as db:
            sql = "SELECT body FROM messages WHERE json_extract(body, '$.checkpoint.id') = ?"
            row = db.execute(sql, (checkpoint_id,)).fetchone()
        return self.tuple_of(config, json.loads(row[0])) if row else None


factory = made(Core, Broken)
