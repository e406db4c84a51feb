"""A circuit breaker: after five errors in a row it answers by itself, and says that there is no history."""

from __future__ import annotations

from typing import Any

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("backend-down",)


class Broken(RedisLists):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errors = 0

    def get_history(self, session_id: str) -> list[Any]:
        if self.errors >= 5:
            return []
        try:
            found = super().get_history(session_id)
        except redis.RedisError:
            self.errors += 1
            raise
        self.errors = 0
        return found


factory = made(Broken)
