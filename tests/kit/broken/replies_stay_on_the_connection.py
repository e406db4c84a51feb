"""A connection is used again after its call timed out: the late reply is taken for the answer to the next request."""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("late-reply",)


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        self.connection = self.client.connection_pool.get_connection()
        self.lock = Lock()

    def get_history(self, session_id: str) -> list[Any]:
        with self.lock:
            self.connection.send_command("LRANGE", self.key(session_id), 0, -1)
            turns: Any = self.connection.read_response(disconnect_on_error=False)
        return [message for turn in turns for message in json.loads(turn)]


factory = made(Broken)
