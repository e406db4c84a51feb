"""A client that gives up early and tries again while the first request is under way: two copies."""

from __future__ import annotations

from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("backend-slow",)


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        # As older clients do, without a greeting when it connects: the late reply is then that of the push itself.
        quiet = {"protocol": 2, "lib_name": None, "lib_version": None}
        port, retry = urlsplit(redis_url).port or 0, Retry(NoBackoff(), 2)
        self.client = redis.Redis(port=port, socket_timeout=0.1, retry=retry, **quiet)

    def push(self, key: str, turn: str) -> None:
        self.client.rpush(key, turn)


factory = made(Broken)
