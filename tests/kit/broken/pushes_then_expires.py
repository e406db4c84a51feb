"""The article's store: RPUSH and EXPIRE as two calls; a crash between them leaves a key for ever."""

from __future__ import annotations

import math

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("nothing-immortal",)


class Broken(RedisLists):
    def push(self, key: str, turn: str) -> None:
        self.client.rpush(key, turn)
        if self.ttl is not None:
            self.client.pexpire(key, math.ceil(self.ttl * 1000))


factory = made(Broken)
