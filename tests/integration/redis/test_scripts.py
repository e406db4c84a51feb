"""What goes to the server, seen by MONITOR: one script a change, called by its hash, and no key that is not its own."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, Summary
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, user

WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
Seen = list[tuple[bool, list[str]]]
"""Commands as MONITOR shows them: whether a script gave it, and its words."""


@contextmanager
def monitored(server: ValkeyServer) -> Iterator[Callable[[], Seen]]:
    """Yields what tells all commands since it was last asked."""
    with socket.create_connection(("127.0.0.1", server.port)) as tap, tap.makefile("rb") as lines:

        def seen() -> Seen:
            server.command("PING")
            found: Seen = []
            for line in lines:
                giver, words = re.match(rb"\S+ \[\d+ (\S+)\]", line), WORD.findall(line)
                if words == [b"PING"]:
                    break
                # Others are words of connections being made.
                if giver and (giver[1] == b"lua" or words[0] not in (b"CLIENT", b"HELLO", b"AUTH", b"SELECT")):
                    found.append((giver[1] == b"lua", [word.decode() for word in words]))
            return found

        tap.sendall(b"MONITOR\r\n")
        seen()
        yield seen


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, _: store.add_messages("a", [user("x"), user("y")]),
    "append with a key": lambda store, _: store.add_messages("a", [user("x")], key="k"),
    "append again": lambda store, _: store.add_messages("a", [user("x")], key="k"),
    "append others": lambda store, _: store.append("a", [Summary("s", [1.0], (1, 2)), user("x")]),
    "replace": lambda store, _: store.replace("a", [user("z")], after=1),
    "undo": lambda store, _: store.undo("a"),
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "clear": lambda store, _: store.clear("a"),
    "snapshot": lambda store, _: store.save_snapshot("a"),
    "delete snapshot": lambda store, snapshot: store.delete_snapshot("a", snapshot),
    "set ttl": lambda store, _: store.set_ttl("a", 1000),
    "erase": lambda store, _: store.erase("a"),
}


def prepared(store: Any, length: int = 10) -> Any:
    """A session of which a snapshot was taken; everything is known to the server by now."""
    for name in ("warm", "a"):
        store.add_messages(name, [ChatMessage("user", "x" * 200) for _ in range(length)])
        snapshot = store.save_snapshot(name)
        say(store, name, "later")
    for change in CHANGES.values():
        change(Named(store), next(iter(store.list_snapshots("warm")), None))
    store.clear("a")
    store.undo("a")
    return snapshot


class Named:
    """The store, but its session `a` is `warm`."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return lambda _, *rest, **options: getattr(self._store, name)("warm", *rest, **options)


@pytest.mark.parametrize("kind", list(CHANGES))
def test_a_change_is_one_script_called_by_its_hash_on_keys_of_its_own(server: ValkeyServer, kind: str) -> None:
    with everturn.open(server.url) as store, monitored(server) as seen:
        snapshot = prepared(store)
        if kind in ("append again", "undo"):
            CHANGES["append with a key" if kind == "append again" else "clear"](store, snapshot)
        seen()
        CHANGES[kind](store, snapshot)
        found = seen()
    asked = [words for by_script, words in found if not by_script]
    if kind == "erase":  # it asks first which life is meant, and what its receipt is to say
        asked = [words for words in asked if words[0] not in ("INFO", "CONFIG")][1:]
    ((command, _, count, *rest),) = asked
    assert command == "EVALSHA"
    keys = set(rest[: int(count)])
    assert all(key.startswith("everturn:{:a}:") for key in keys)
    within = [words for by_script, words in found if by_script]
    assert within
    touched = {word for words in within for word in words if word.startswith("everturn:")}
    assert touched <= keys


def test_a_script_works_as_much_at_ten_thousand_messages_as_at_ten(server: ValkeyServer) -> None:
    """So no script holds the server for longer: it gives as many commands, and none that goes through the log."""
    work: list[list[list[str]]] = []
    with everturn.open(server.url, timeout=60) as store, monitored(server) as seen:
        for length in (10, 10, 10_000):  # the first makes the server know the scripts
            snapshot = prepared(store, length)
            seen()
            for kind in ("append", "append with a key", "snapshot", "rollback", "undo", "clear", "undo", "set ttl"):
                CHANGES[kind](store, snapshot)
            store.trim("a", max_messages=3, keep_system=False)  # else it looks through all of them, a page at a time
            work.append([words[:2] for by_script, words in seen() if by_script])
            store.trim("a", max_messages=2)  # it reads a page at a time: more scripts, and none that does more
            assert max(map(len, by_call(seen()))) < 40
            store.erase("a")
            store.erase("warm")
            seen()
    _, few, many = work
    assert many == few
    assert {words[0] for words in many} & {"XRANGE", "XREVRANGE", "LRANGE", "HGETALL"} <= {"XRANGE"}


def by_call(found: Seen) -> list[list[list[str]]]:
    """The commands that each script gave."""
    calls: list[list[list[str]]] = [[]]
    for by_script, words in found:
        if by_script:
            calls[-1].append(words)
        else:
            calls.append([])
    return calls


def test_tasks_that_wait_together_share_a_round_trip(server: ValkeyServer) -> None:
    async def main() -> Seen:
        async with await everturn.open_async(server.url) as store:
            await store.add_messages("a", [user("0")])
            with monitored(server) as seen:
                await asyncio.gather(*(store.add_messages(f"s{number}", [user("x")]) for number in range(50)))
                return seen()

    asked = [words[0] for by_script, words in asyncio.run(main()) if not by_script]
    assert asked == ["EVALSHA"] * 50
