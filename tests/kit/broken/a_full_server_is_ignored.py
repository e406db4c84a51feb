"""maxmemory reached at night: the error is logged, the turn is acknowledged, and gone."""

from __future__ import annotations

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("server-full",)


class Broken(RedisLists):
    def push(self, key: str, turn: str) -> None:
        try:
            super().push(key, turn)
        except redis.ResponseError:
            pass  # logged


factory = made(Broken)
