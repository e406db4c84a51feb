"""Compaction that forgets undo steps first, at the level of the Redis backend."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import everturn
from everturn import CorruptEntry, InvalidInput, MemoryStore
from everturn.backend import drive
from everturn.backends.redis import scripts
from everturn.model import Compaction
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, words

NOTHING = Compaction(0, 0, 0)


def drop(store: MemoryStore, session_id: str) -> Compaction:
    return drive(store._operations.backend.compact(session_id, time.monotonic() + 30, drop_undo=True))


def replaced(store: MemoryStore, session_id: str) -> None:
    """Leave a session of one message, with two more that only undo can reach."""
    say(store, session_id, "first")
    for word in ("second", "third"):
        say(store, session_id, word)
        store.replace(session_id, [], after=1)


def test_undo_steps_go_and_entries_that_only_they_could_reach_are_reclaimed(store: MemoryStore) -> None:
    replaced(store, "a")
    backend = store._operations.backend
    assert drive(backend.compact("a", time.monotonic() + 30)).entries == 0
    before = store.info("a")
    done = drop(store, "a")
    assert (done.sessions, done.entries) == (1, 2)
    after = store.info("a")
    assert (after.undo_steps, after.version, after.life) == (0, before.version, before.life)
    assert words(store, "a") == ["first"]
    with pytest.raises(InvalidInput):
        store.undo("a")
    assert store.verify().ok


def test_other_sessions_keep_theirs_and_new_steps_can_be_undone(store: MemoryStore) -> None:
    replaced(store, "a")
    replaced(store, "b")
    drop(store, "b")
    drop(store, "b")  # as a retry does
    assert [store.info(name).undo_steps for name in "ab"] == [2, 0]
    store.clear("b")
    store.undo("b")
    assert words(store, "b") == ["first"]
    assert store.verify().ok


def test_snapshots_still_reach_their_entries(store: MemoryStore) -> None:
    say(store, "a", "first")
    say(store, "a", "second")
    snapshot = store.save_snapshot("a")
    store.replace("a", [], after=1)
    assert drop(store, "a").entries == 0
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["first", "second"]


def test_an_absent_session_stays_absent(store: MemoryStore, client: Any) -> None:
    assert drop(store, "a") == NOTHING
    assert client.keys("*") == []


def test_a_session_with_a_ttl_keeps_it(store: MemoryStore, client: Any) -> None:
    replaced(store, "a")
    store.set_ttl("a", 1000)
    before = client.pexpiretime("everturn:{:a}:meta")
    drop(store, "a")
    assert client.pexpiretime("everturn:{:a}:meta") == before > 0


def test_damaged_undo_steps_are_reported_and_not_dropped(store: MemoryStore, client: Any) -> None:
    replaced(store, "a")
    kept = client.hget("everturn:{:a}:meta", "undo")
    client.hset("everturn:{:a}:meta", "undo", kept[:-1] + b"9")
    with pytest.raises(CorruptEntry):
        drop(store, "a")
    assert client.hget("everturn:{:a}:meta", "undo") == kept[:-1] + b"9"


def test_a_request_that_comes_too_late_drops_nothing(store: MemoryStore, client: Any) -> None:
    replaced(store, "a")
    keys = store._operations.backend._names.keys("a")  # type: ignore[attr-defined]  # Redis's
    answer = client.eval(scripts.DROP_UNDO.text, len(keys), *keys, 1, 2)  # issued, and not to be applied after, 1970
    assert b" late " in answer
    assert store.info("a").undo_steps == 2


def test_an_event_loop_drops_them_too(server: ValkeyServer, store: MemoryStore) -> None:
    replaced(store, "a")

    async def story() -> None:
        async with await everturn.open_async(server.url) as other:
            done = await other._operations.backend.compact("a", time.monotonic() + 30, drop_undo=True)
            assert (done.sessions, done.entries) == (1, 2)

    asyncio.run(story())
    assert store.info("a").undo_steps == 0
