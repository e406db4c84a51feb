"""Compaction that forgets undo steps first, at the level of the SQLite backend."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, InvalidInput, MemoryStore
from everturn.backend import drive
from everturn.model import Compaction

NOTHING = Compaction(0, 0, 0)


def soon() -> float:
    return time.monotonic() + 30.0


def replaced(store: MemoryStore, session_id: str) -> None:
    """Leave a session of one message, with two more that only undo can reach."""
    store.add_messages(session_id, [ChatMessage("user", "first"), ChatMessage("user", "second")])
    store.replace(session_id, [], after=1)
    store.add_messages(session_id, [ChatMessage("user", "third")])
    store.replace(session_id, [], after=1)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db" if request.param == "file" else "sqlite://"


def test_undo_steps_go_and_what_only_they_could_reach_is_reclaimed(url: str) -> None:
    with everturn.open(url) as store:
        replaced(store, "a")
        backend = store._operations.backend
        assert drive(backend.compact("a", soon())).entries == 0
        before = store.state("a")
        done = drive(backend.compact("a", soon(), drop_undo=True))
        assert (done.sessions, done.entries) == (1, 2)
        assert (store.info("a").undo_steps, store.info("a").version) == (0, before.version)
        assert store.state("a").entries == before.entries
        with pytest.raises(InvalidInput):
            store.undo("a")
        assert store.verify().ok


def test_other_sessions_keep_their_undo_steps(url: str) -> None:
    with everturn.open(url) as store:
        for name in ("a", "b", "c"):
            replaced(store, name)
        drive(store._operations.backend.compact("b", soon(), drop_undo=True))
        assert [store.info(name).undo_steps for name in "abc"] == [2, 0, 2]
        store.undo("a")
        assert [message.content for message in store.get_history("a")] == ["first", "third"]


def test_snapshots_still_reach_what_they_point_to(url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", [ChatMessage("user", "first"), ChatMessage("user", "second")])
        snapshot = store.save_snapshot("a")
        store.replace("a", [], after=1)
        assert drive(store._operations.backend.compact("a", soon(), drop_undo=True)).entries == 0
        store.rollback_to_snapshot("a", snapshot)
        assert [message.content for message in store.get_history("a")] == ["first", "second"]


def test_an_absent_session_stays_absent(url: str) -> None:
    with everturn.open(url) as store:
        assert drive(store._operations.backend.compact("a", soon(), drop_undo=True)) == NOTHING
        assert store.sessions().sessions == ()


def test_the_async_backend_drops_them_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store:
        replaced(store, "a")

    async def story() -> None:
        async with await everturn.open_async(url) as store:
            done = await store._operations.backend.compact("a", soon(), drop_undo=True)
            assert (done.sessions, done.entries) == (1, 2)
            assert (await store.info("a")).undo_steps == 0

    asyncio.run(asyncio.wait_for(story(), 50))
