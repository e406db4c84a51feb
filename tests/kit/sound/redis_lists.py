"""A sound store over Redis, written by hand: a turn is one element, pushed together with its expiry."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class RedisLists:
    def __init__(self, prefix: str, redis_url: str, ttl: float | None, timeout: float) -> None:
        self.prefix = prefix
        self.ttl = ttl
        # No retries: a push whose reply is late must not be pushed again.
        self.client = redis.Redis.from_url(
            redis_url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )

    def key(self, session_id: str) -> str:
        return f"{self.prefix}:{session_id}"

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        if messages:
            self.push(self.key(session_id), json.dumps([dict(message) for message in messages], allow_nan=False))

    def push(self, key: str, turn: str) -> None:
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.rpush(key, turn)
            if self.ttl is not None:
                pipeline.pexpire(key, math.ceil(self.ttl * 1000))
            pipeline.execute()

    def get_history(self, session_id: str) -> list[Any]:
        turns: Any = self.client.lrange(self.key(session_id), 0, -1)
        return [message for turn in turns for message in json.loads(turn)]

    def clear(self, session_id: str) -> None:
        self.client.delete(self.key(session_id))

    def close(self) -> None:
        self.client.close()


def made(store: type[RedisLists] = RedisLists) -> Any:
    def factory(where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None) -> RedisLists:
        return store(where.name, redis_url, ttl, 2.0 if timeout is None else timeout)

    factory.share_threads = True  # type: ignore[attr-defined]
    factory.corrupt = corrupt  # type: ignore[attr-defined]
    return factory


def corrupt(where: Path, session_id: str, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        key = f"{where.name}:{session_id}"
        turn: Any = client.lindex(key, 1)
        client.lset(key, 1, turn[:-8] + b"\xff" * 8)


factory = made()
