"""A slot of the pool is given back only after a call that went well: some time-outs later there is none left."""

from __future__ import annotations

from threading import BoundedSemaphore

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("pool-dry",)


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        self.slots = BoundedSemaphore(10)

    def push(self, key: str, turn: str) -> None:
        if not self.slots.acquire(timeout=0.5):
            raise TimeoutError("the pool is dry")
        super().push(key, turn)
        self.slots.release()


factory = made(Broken)
