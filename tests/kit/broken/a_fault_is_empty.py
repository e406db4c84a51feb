"""except ConnectionError: return []. The bot greets a customer of three years as a new one."""

from __future__ import annotations

from typing import Any

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("backend-down",)


class Broken(RedisLists):
    def get_history(self, session_id: str) -> list[Any]:
        try:
            return super().get_history(session_id)
        except redis.ConnectionError:
            return []


factory = made(Broken)
