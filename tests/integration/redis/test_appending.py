"""Appends from many threads over few connections, and after a rollback."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import everturn
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, words


def test_a_turn_after_a_rollback_follows_the_snapshot(store: Any) -> None:
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
