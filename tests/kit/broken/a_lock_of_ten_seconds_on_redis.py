"""A lock of ten seconds on Redis, and no fence: who had it before goes on, and writes its old list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

CAUGHT_BY = ("paused-in-append",)


class Broken:
    def __init__(self, prefix: str, redis_url: str) -> None:
        self.prefix = prefix
        self.client = redis.Redis.from_url(redis_url)

    def change(self, session_id: str, change: Callable[[list[Any]], list[Any]]) -> None:
        lock = self.client.lock(f"{self.prefix}:lock:{session_id}", timeout=10, sleep=0.005)
        lock.acquire()
        self.client.set(f"{self.prefix}:of:{session_id}", json.dumps(change(self.get_history(session_id))))
        with suppress(redis.exceptions.LockError):
            lock.release()

    def get_history(self, session_id: str) -> list[Any]:
        held: Any = self.client.get(f"{self.prefix}:of:{session_id}")
        return json.loads(held or b"[]")  # type: ignore[no-any-return]

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self.change(session_id, lambda held: held + [dict(message) for message in messages])

    def clear(self, session_id: str) -> None:
        self.change(session_id, lambda _: [])


def factory(where: Path, redis_url: str) -> Broken:
    return Broken(where.name, redis_url)
