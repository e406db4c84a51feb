"""A sound store over Redis whose turns are compressed: no word of a message can be seen on the wire."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import redis

from tests.kit.sound.redis_lists import RedisLists, made


class Compressed(RedisLists):
    def push(self, key: str, turn: str) -> None:
        super().push(key, zlib.compress(turn.encode()))  # type: ignore[arg-type]

    def get_history(self, session_id: str) -> list[Any]:
        turns: Any = self.client.lrange(self.key(session_id), 0, -1)
        return [message for turn in turns for message in json.loads(zlib.decompress(turn))]


def corrupt(where: Path, session_id: str, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        key = f"{where.name}:{session_id}"
        turn: Any = client.lindex(key, 1)
        client.lset(key, 1, turn[:-8] + b"\xff" * 8)


factory = made(Compressed)
factory.corrupt = corrupt
