"""A script is loaded once and called by its digest: after a restart of Redis nobody can write any more."""

from __future__ import annotations

from tests.kit.sound.redis_lists import RedisLists, made

CAUGHT_BY = ("server-restarted",)
PUSH = "redis.call('RPUSH', KEYS[1], ARGV[1]) if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end"


class Broken(RedisLists):
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        super().__init__(prefix, redis_url, ttl, timeout)
        self.digest = str(self.client.script_load(PUSH))

    def push(self, key: str, turn: str) -> None:
        self.client.evalsha(self.digest, 1, key, turn, "" if self.ttl is None else str(int(self.ttl * 1000)))


factory = made(Broken)
