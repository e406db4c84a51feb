"""append_fast.lua, the short way of a plain turn, stores the same as append.lua."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everturn
from everturn import ChatMessage
from everturn.backends.redis.transport import resp
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, user, words

TURN = [user("1"), ChatMessage("assistant", "2")]


def stored(client: Any, name: str) -> list[Any]:
    """All that is kept of a session, but for what differs between any two: its times, its life, its calls."""
    keys = [f"everturn:{{:{name}}}:{part}" for part in ("meta", "log", "changes")]
    meta = client.hgetall(keys[0])
    life = meta.pop(b"life")
    meta |= {b"check": b"", b"undo": meta[b"undo"][9:]}  # checks are made with the life and the name
    changes = [(number, *next(iter(fields.items()))) for number, fields in client.xrange(keys[2])]
    changes = [(number, kind, value[9:]) for number, kind, value in changes]
    log = re.sub(
        rb"(\d{16}) \d+ ", rb"\1 PLACE ", repr(client.xrange(keys[1])).encode()
    )  # it follows from the time, too
    everything = [sorted(meta.items()), log, changes, [client.ttl(key) > 0 for key in keys]]
    return [re.sub(rb"\d{16}", b"TIME", repr(part).encode().replace(life, b"LIFE")) for part in everything]


@pytest.mark.parametrize("ttl", [None, 1000.0])
def test_a_plain_turn_is_stored_as_any_other(store: Any, client: Any, ttl: float | None) -> None:
    for name in ("plain", "expected"):
        say(store, name, "system")
        store.set_ttl(name, ttl)
        store.clear(name)
    for version in range(3, 7):
        plain = store.add_messages("plain", TURN)
        expected = store.add_messages("expected", TURN, expected_version=version)  # not by append_fast.lua
        assert (plain.version, plain.seqs) == (expected.version, expected.seqs)
    assert stored(client, "plain") == stored(client, "expected")


def test_a_plain_turn_after_a_rollback_goes_the_long_way(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    say(store, "a", "3")
    assert words(store, "a") == ["1", "3"]
    assert store.verify("a").ok


def test_threads_take_turns_where_connections_are_few(server: ValkeyServer) -> None:
    with everturn.open(server.url, max_connections=2) as store, ThreadPoolExecutor(12) as threads:

        def write(number: int) -> None:
            for turn in range(50):
                say(store, f"s{number}", str(turn))

        list(threads.map(write, range(12)))
        assert [words(store, f"s{number}") for number in range(12)] == [[str(turn) for turn in range(50)]] * 12


def test_it_works_without_hiredis(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resp, "reply_reader", None)
    server.command("SCRIPT", "FLUSH")
    with everturn.open(server.url) as store:
        for word in ("é", "2", "x" * 100_000):
            say(store, "a", word)
        assert words(store, "a") == ["é", "2", "x" * 100_000]
