"""Another life of a session begins between any two commands of a call on Redis: that is no damage.

No network and no time: a simulated server carries out the commands one by one, and the test steps in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from everturn import CorruptEntry, Record, SessionNotFound, Summary, ToolCall
from everturn.backend import drive
from everturn.backends.redis.backend import RedisBackend
from everturn.backends.redis.client import Sender
from everturn.backends.redis.topology import SingleServer
from everturn.backends.redis.transport.resp import Command
from everturn.backends.redis.url import Node
from everturn.store.operations import Operations
from everturn.store.options import Settings
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.records import message
from tests.simulation.redis_server import RedisServer
from tests.simulation.scheduler import Scheduler

MINUTE = 60.0


class Steps:
    """Connections to a server on which something happens behind the command of a number."""

    def __init__(self, server: RedisServer, happens: Callable[[int], None] = lambda _: None) -> None:
        self._server = server
        self._happens = happens
        self.count = 0

    async def exchange(self, _: Node, commands: Sequence[Command], *__: Any, **___: Any) -> list[Any]:
        replies = []
        for command in commands:
            replies += self._server.execute([command])
            self.count += 1
            self._happens(self.count)
        return replies

    async def close(self) -> None: ...


def opened(lines: Steps) -> tuple[RedisBackend, Operations]:
    backend = RedisBackend(Sender(lines, SingleServer(("h", 1))), "")
    runtime = Host(Scheduler(), "test", Clock(0.0), Clock(EPOCH))
    runtime.clock = time.monotonic  # type: ignore[method-assign]
    return backend, Operations(backend, Settings(timeout=MINUTE), runtime)


def begin(operations: Operations, word: str) -> None:
    """Begin a life that has every part: several ranges, snapshots, entries that are no messages."""
    drive(operations.add_messages("a", [message(f"{word} 1")]))
    drive(operations.append("a", [ToolCall("f", {"x": word}), Summary(word, [1.0], (1, 1)), Record("r", word)]))
    drive(operations.save_snapshot("a", word))
    for number in range(3):
        drive(operations.replace("a", [message(f"{word} {number}")], after=1))


CALLS: dict[str, Callable[[RedisBackend, Operations], Any]] = {
    "compact": lambda _, operations: operations.compact("a"),
    "verify": lambda _, operations: operations.verify("a"),
    "read": lambda _, operations: operations.get_history("a"),
    "fork": lambda _, operations: operations.fork("a", "b"),
    "changes": lambda backend, _: backend.changes("a", 100, time.monotonic() + MINUTE),
    "outline": lambda backend, _: backend.outline("a", time.monotonic() + MINUTE),
}


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "begins anew"])
@pytest.mark.parametrize("name", CALLS)
def test_a_life_that_ends_while_it_is_looked_at_is_not_damaged(name: str, ends: bool) -> None:
    moment, has_happened = 0, True
    while has_happened:
        moment, has_happened = moment + 1, False
        server = RedisServer(lambda: EPOCH + time.monotonic())
        _, other = opened(Steps(server))
        begin(other, "old")

        def happens(count: int, moment: int = moment, other: Operations = other) -> None:
            nonlocal has_happened
            if count == moment:
                has_happened = True
                drive(other.erase("a"))
                if not ends:
                    begin(other, "new")

        try:
            result = drive(CALLS[name](*opened(Steps(server, happens))))
        except SessionNotFound:
            assert ends
        else:
            assert name != "verify" or result.problems == ()
    assert moment > 2  # there was something to step between


@pytest.mark.parametrize("name", ["compact", "changes", "verify"])
def test_changes_of_another_life_are_damage_when_no_life_has_ended(name: str) -> None:
    server = RedisServer(lambda: EPOCH + time.monotonic())
    backend, operations = opened(Steps(server))
    begin(operations, "old")
    (key,) = (key for key in server.space.values if key.endswith(b"changes"))
    foreign = server.space.values[key].copy()
    drive(operations.erase("a"))
    begin(operations, "new")
    server.space.values[key] = foreign
    if name == "verify":
        assert drive(operations.verify("a")).problems
    else:
        with pytest.raises(CorruptEntry, match="changes"):
            drive(CALLS[name](backend, operations))
