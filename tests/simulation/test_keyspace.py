"""Compares the simulated Redis with a real one: each command that scripts use has the same reply."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import redis

from everturn.testing.servers import valkey_server
from tests.simulation.keyspace import Keyspace, ServerError
from tests.tiers import first

KEYS = [b"hash", b"other hash", b"stream", b"zset", b"text"]
FIELDS = [b"a", b"b", b"c"]


@pytest.fixture(scope="module")
def real() -> Iterator[redis.Redis]:
    with valkey_server() as server, redis.Redis.from_url(server.url, protocol=2) as client:
        client.response_callbacks.clear()
        yield client


def _command(random: Random) -> tuple[bytes, ...]:
    seq = b"%d-0" % random.randint(1, 12)
    low, high = sorted(random.choices(range(13), k=2))
    bounds = b"%d" % low, b"%d" % high
    number, field = b"%d" % random.randint(-5, 20), random.choice(FIELDS)
    choices: list[tuple[bytes, ...]] = [
        (b"HSET", b"hash", field, number, random.choice(FIELDS), b"x"),
        (b"HSETNX", b"other hash", field, number),
        (b"HGET", b"hash", field),
        (b"HMGET", b"hash", *FIELDS),
        (b"HDEL", b"hash", field, b"b"),
        (b"HEXISTS", b"hash", field),
        (b"HLEN", b"hash"),
        (b"HSCAN", b"hash", b"0", b"MATCH", field + b"*", b"COUNT", b"1000"),
        (b"HINCRBY", b"other hash", field, number),
        (b"XADD", b"stream", seq, b"message", number),
        (b"XRANGE", b"stream", b"-", b"+"),
        (b"XRANGE", b"stream", *bounds),
        (b"XRANGE", b"stream", b"(" + bounds[0], bounds[1], b"COUNT", b"2"),
        (b"XREVRANGE", b"stream", b"+", b"-", b"COUNT", b"3"),
        (b"XREVRANGE", b"stream", bounds[1], bounds[0]),
        (b"XLEN", b"stream"),
        (b"XDEL", b"stream", seq, b"1-0"),
        (b"XTRIM", b"stream", b"MINID", b"%d-0" % low),
        (b"ZADD", b"zset", number, field),
        (b"ZRANGE", b"zset", b"0", b"-1"),
        (b"ZREVRANGE", b"zset", b"0", b"1"),
        (b"ZREVRANGEBYSCORE", b"zset", bounds[1], b"-inf", b"WITHSCORES", b"LIMIT", b"0", b"2"),
        (b"ZREVRANGEBYSCORE", b"zset", bounds[1], bounds[0], b"WITHSCORES"),
        (b"ZRANGE", b"zset", b"0", b"-1", b"WITHSCORES"),
        (b"ZRANGEBYSCORE", b"zset", *bounds),
        (b"ZRANGEBYSCORE", b"zset", b"(" + bounds[0], b"+inf", b"LIMIT", b"0", b"1"),
        (b"ZCOUNT", b"zset", *bounds),
        (b"ZREM", b"zset", field),
        (b"ZREMRANGEBYSCORE", b"zset", *bounds),
        (b"ZCARD", b"zset"),
        (b"EXISTS", *KEYS),
        (b"TYPE", random.choice(KEYS)),
        (b"SET", b"text", number),
        (b"GET", b"text"),
        (b"GET", b"hash"),
        (b"PERSIST", random.choice(KEYS)),
        (b"PEXPIRE", random.choice(KEYS), b"1000000"),
        (b"PEXPIREAT", random.choice(KEYS), random.choice((b"1000", b"99999999999999"))),
        (b"RENAME", random.choice(KEYS[:2]), b"hash"),
        (b"UNLINK", random.choice(KEYS)),
    ]
    return random.choice(choices)


def _answer(ask: Any, command: tuple[bytes, ...]) -> Any:
    try:
        return _plain(ask(command))
    except (ServerError, redis.ResponseError) as exc:
        return str(exc).split()[0].removeprefix("WRONGTYPE"), "an error"


def _plain(reply: Any) -> Any:
    return [_plain(part) for part in reply] if isinstance(reply, list | tuple) else reply


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_the_simulated_server_answers_as_a_real_one_does(real: redis.Redis, seed: int) -> None:
    random = Random(seed)
    simulated = Keyspace(time.time)
    real.flushall()
    done: list[tuple[bytes, ...]] = []
    for _ in range(1500):
        command = _command(random)
        done.append(command)
        simulated.purge()
        there = _answer(lambda command: simulated.run(command[0], command[1:]), command)
        here = _answer(lambda command: real.execute_command(*command), command)
        if isinstance(here, tuple) or isinstance(there, tuple):
            assert isinstance(here, tuple) is isinstance(there, tuple), (done[-12:], here, there)
        else:
            assert there == here, done[-12:]
