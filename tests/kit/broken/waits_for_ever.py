"""No socket time-out, whatever `timeout` says: a frozen server freezes every worker."""

from __future__ import annotations

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("backend-hung",)


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, 600.0)


factory = made(Broken)
