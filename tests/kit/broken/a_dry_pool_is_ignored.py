"""A pool that runs dry: the write is skipped, with a warning in a log that nobody reads."""

from __future__ import annotations

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("crowd",)


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        self.client.connection_pool.max_connections = 2

    def push(self, key: str, turn: str) -> None:
        try:
            super().push(key, turn)
        except redis.ConnectionError:
            pass  # logged


factory = made(Broken)
