"""LangChain's Redis history: a turn is several RPUSHes, and turns of concurrent writers interleave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("whole-turns", "append-read", "killed-in-append")


class Broken(RedisLists):
    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        for message in messages:
            self.push(self.key(session_id), json.dumps([dict(message)]))


factory = made(Broken)
