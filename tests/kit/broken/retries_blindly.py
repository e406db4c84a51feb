"""redis-py 8.1.0 retries ten times by default: one rpush with a late reply stores the item twice (#3554)."""

from __future__ import annotations

from urllib.parse import urlsplit

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("reply-swallowed", "connections-cut")


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        # from_url would not retry; a client made by hand does.
        self.client = redis.Redis(port=urlsplit(redis_url).port or 0, socket_timeout=timeout)

    def push(self, key: str, turn: str) -> None:
        self.client.rpush(key, turn)


factory = made(Broken)
