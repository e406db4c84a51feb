"""The whole transaction is made again when its EXEC is not answered: the first was made, too."""

from __future__ import annotations

import redis

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("cut-in-commit",)


class Broken(RedisLists):
    def push(self, key: str, turn: str) -> None:
        try:
            super().push(key, turn)
        except redis.ConnectionError:
            super().push(key, turn)


factory = made(Broken)
