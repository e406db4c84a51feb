"""Undo steps dropped before compaction: entries that only `undo` could bring back are reclaimed, and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import everturn
from everturn import InvalidInput, MemoryStore, MemoryStoreBackendError
from everturn.backend import drive
from everturn.errors import CorruptEntry, SessionNotFound
from everturn.model import Compaction
from tests.store.speech import say, words

pytestmark = pytest.mark.one_schema


@pytest.fixture
def store(url: str) -> Iterator[MemoryStore]:
    """A store with one session of which two messages are out of everybody's reach, but for `undo`."""
    with everturn.open(url, timeout=20) as store:
        say(store, "a", "kept")
        say(store, "a", "replaced")
        store.replace("a", [everturn.ChatMessage("user", "new")], after=1)
        yield store


def compacted(store: MemoryStore, session_id: str = "a", *, drop_undo: bool = True) -> Compaction:
    """Compact as the operations above a backend do: the first request alone drops the undo steps."""
    backend: Any = store._operations.backend
    total = Compaction(0, 0, 0)
    while True:
        step = drive(backend.compact(session_id, time.monotonic() + 20, drop_undo=drop_undo))
        if step.sessions == 0:
            return total
        total = Compaction(1, total.entries + step.entries, total.bytes + step.bytes)
        drop_undo = False


def test_entries_that_only_undo_could_reach_are_reclaimed(store: MemoryStore) -> None:
    before = store.info("a")
    assert compacted(store, drop_undo=False).entries == 0
    assert compacted(store).entries == 1
    after = store.info("a")
    assert (after.version, after.undo_steps) == (before.version, 0)
    assert words(store, "a") == ["kept", "new"]
    assert store.verify("a").ok
    with pytest.raises(InvalidInput):
        store.undo("a")


def test_snapshots_keep_their_entries(store: MemoryStore) -> None:
    store.undo("a")
    snapshot = store.save_snapshot("a")
    store.clear("a")
    assert compacted(store).entries == 1  # the turn that undo took back
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["kept", "replaced"]


def test_steps_that_are_made_later_can_be_undone(store: MemoryStore) -> None:
    compacted(store)
    store.clear("a")
    assert compacted(store, drop_undo=False).entries == 0
    store.undo("a")
    assert words(store, "a") == ["kept", "new"]


def test_a_session_that_is_not_there_stays_so(store: MemoryStore) -> None:
    assert compacted(store, "nobody") == Compaction(0, 0, 0)
    with pytest.raises(SessionNotFound):
        store.info("nobody")


def test_steps_that_are_damaged_are_left_as_they_are(
    store: MemoryStore, schema: str, beside: psycopg.Connection[Any]
) -> None:
    beside.execute(f"UPDATE {schema}.undo_steps SET head = head - 1")  # type: ignore[arg-type]  # the test's own
    with pytest.raises(CorruptEntry, match="undo steps"):
        compacted(store)
    assert beside.execute(f"SELECT count(*) FROM {schema}.undo_steps").fetchone() == (1,)  # type: ignore[arg-type]


def test_a_request_that_comes_late_drops_nothing(store: MemoryStore) -> None:
    backend: Any = store._operations.backend
    issued, not_after, _ = drive(backend._first_window(time.monotonic() + 20))
    store.undo("a")  # a fence: requests that were issued before it are not applied behind it
    store.clear("a")
    parameters = ("", "a", 1000, issued, not_after, None)
    with pytest.raises(MemoryStoreBackendError, match="too late") as caught:
        drive(backend._ask("drop_undo", parameters, time.monotonic() + 20, writes=True))
    assert caught.value.outcome == "not_written"
    store.undo("a")
    assert words(store, "a") == ["kept", "replaced"]
