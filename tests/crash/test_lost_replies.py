"""The reply to a change is lost: the store's own retry finds that it has landed, and nothing is run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStore, MemoryStoreBackendError, Record, Snapshot, Summary, ToolCall
from tests.store.speech import gives_up_after

SESSION = "the conversation"
OPTIONS = "synchronous=OFF"  # nothing crashes here, so nothing needs to be synced


class LossyBackend:
    """A backend whose first replies, or first requests, get lost on the way."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.lost_replies = 0
        self.lost_requests = 0
        self.meanwhile: Callable[[], Any] = lambda: None  # what others do before the retry
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def change(self, request: Any, deadline: float) -> Any:
        return await self._lossy(self._backend.change, request, deadline)

    async def fork(self, request: Any, deadline: float) -> Any:
        return await self._lossy(self._backend.fork, request, deadline)

    async def _lossy(self, send: Callable[[Any, float], Any], request: Any, deadline: float) -> Any:
        self.attempts += 1
        if self.lost_requests:
            self.lost_requests -= 1
            raise MemoryStoreBackendError("the request was lost", outcome="not_written", transient=True)
        outcome = await send(request, deadline)
        if self.lost_replies:
            self.lost_replies -= 1
            self.meanwhile()
            raise MemoryStoreBackendError("the reply was lost", outcome="unknown", transient=True)
        return outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def prepare(store: MemoryStore) -> Snapshot:
    """A session in which every kind of change has something to do."""
    store.add_messages(SESSION, [ChatMessage("user", f"message {number}") for number in range(2)])
    snapshot = store.save_snapshot(SESSION, "early")
    for number in range(4):
        store.save_context(SESSION, f"question {number}", f"answer {number}")
    store.trim(SESSION, max_messages=6)
    return snapshot


@pytest.fixture
def store(path: Path) -> Iterator[MemoryStore]:
    with everturn.open(f"sqlite:///{path}?{OPTIONS}") as store:
        yield store


Change = Callable[[Any, Snapshot], Any]

CHANGES: dict[str, Change] = {
    "add_messages": lambda store, _, **kw: store.add_messages(SESSION, [ChatMessage("user", "once")], **kw),
    "append": lambda store, _, **kw: store.append(
        SESSION, [ChatMessage("user", "once"), Record(kind="k", body=1)], **kw
    ),
    "save_context": lambda store, _, **kw: store.save_context(SESSION, "once", "and no more", **kw),
    "add_tool_call": lambda store, _, **kw: store.add_tool_call(SESSION, ToolCall(name="t", arguments={}), **kw),
    "add_summary": lambda store, _, **kw: store.add_summary(
        SESSION, Summary(text="s", embedding=[1.0, 2.0], covers=(1, 2)), **kw
    ),
    "replace": lambda store, _, **kw: store.replace(SESSION, [ChatMessage("user", "once")], after=4, **kw),
    "trim": lambda store, _, **kw: store.trim(SESSION, max_messages=2, **kw),
    "clear": lambda store, _, **kw: store.clear(SESSION, **kw),
    "rollback": lambda store, snapshot, **kw: store.rollback_to_snapshot(SESSION, snapshot, **kw),
    "undo": lambda store, _, **kw: store.undo(SESSION, **kw),
    "save_snapshot": lambda store, _, **kw: store.save_snapshot(SESSION, "late", **kw),
    "delete_snapshot": lambda store, snapshot, **kw: store.delete_snapshot(SESSION, snapshot, **kw),
    "set_ttl": lambda store, _, **kw: store.set_ttl(SESSION, 1000, **kw),
    "fork": lambda store, _, **kw: store.fork(SESSION, "the copy", **kw),
}
every_kind = pytest.mark.parametrize("kind", CHANGES)


def make_lossy(store: Any) -> LossyBackend:
    store._operations.backend = backend = LossyBackend(store._operations.backend)
    return backend


def facts(store: MemoryStore) -> dict[str, Any]:
    """Read everything that can be compared of every session, and its log of changes."""
    return {
        session.session_id: (
            store.state(session.session_id),
            [(change.version, change.kind, change.seqs, change.label) for change in store.changes(session.session_id)],
        )
        for session in store.sessions().sessions
    }


def expected(kind: str, tmp_path: Path, **options: Any) -> dict[str, Any]:
    """Run the change with nothing lost, and return its effect."""
    with everturn.open(f"sqlite:///{tmp_path}/undisturbed.db?{OPTIONS}") as store:
        CHANGES[kind](store, prepare(store), **options)
        return facts(store)


def check_receipt(kind: str, result: Any, *, replayed: bool) -> None:
    if kind == "save_snapshot":
        assert result.label == "late"
    else:
        assert result.replayed is replayed


def target(kind: str) -> str:
    return "the copy" if kind == "fork" else SESSION


@every_kind
@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_reply_runs_nothing_twice(store: MemoryStore, tmp_path: Path, kind: str, times: int) -> None:
    snapshot = prepare(store)
    backend = make_lossy(store)
    backend.lost_replies = times
    result = CHANGES[kind](store, snapshot)
    assert backend.attempts == times + 1
    check_receipt(kind, result, replayed=True)
    assert facts(store) == expected(kind, tmp_path)
    assert result.version == store.info(target(kind)).version
    assert store.verify().ok
    if kind == "save_snapshot":
        assert result.id in [kept.id for kept in store.list_snapshots(SESSION)]


@every_kind
def test_a_lost_request_is_sent_again(store: MemoryStore, tmp_path: Path, kind: str) -> None:
    snapshot = prepare(store)
    backend = make_lossy(store)
    backend.lost_requests = 2
    check_receipt(kind, CHANGES[kind](store, snapshot), replayed=False)
    assert facts(store) == expected(kind, tmp_path)


@every_kind
def test_a_lost_request_and_then_a_lost_reply_run_it_once(store: MemoryStore, tmp_path: Path, kind: str) -> None:
    snapshot = prepare(store)
    backend = make_lossy(store)
    backend.lost_requests = backend.lost_replies = 1
    check_receipt(kind, CHANGES[kind](store, snapshot), replayed=True)
    assert facts(store) == expected(kind, tmp_path)


@every_kind
def test_an_expected_version_does_not_turn_the_retry_into_a_conflict(
    store: MemoryStore, tmp_path: Path, kind: str
) -> None:
    snapshot = prepare(store)
    version = store.info(SESSION).version
    make_lossy(store).lost_replies = 1
    check_receipt(kind, CHANGES[kind](store, snapshot, expected_version=version), replayed=True)
    assert facts(store) == expected(kind, tmp_path, expected_version=version)


@every_kind
def test_a_key_does_not_change_what_the_retry_finds(store: MemoryStore, tmp_path: Path, kind: str) -> None:
    snapshot = prepare(store)
    make_lossy(store).lost_replies = 1
    first = CHANGES[kind](store, snapshot, key="mine")
    check_receipt(kind, first, replayed=True)
    again = CHANGES[kind](store, snapshot, key="mine")
    check_receipt(kind, again, replayed=True)
    assert again.version == first.version
    assert facts(store) == expected(kind, tmp_path, key="mine")


@every_kind
def test_what_others_do_before_the_retry_hides_no_receipt(store: MemoryStore, path: Path, kind: str) -> None:
    """Another writer appends, clears and rolls back between the lost reply and the retry."""
    snapshot = prepare(store)
    before = store.info(SESSION).version
    backend = make_lossy(store)
    after_others: list[Any] = []

    def meanwhile() -> None:
        with everturn.open(f"sqlite:///{path}?{OPTIONS}") as other:
            other.add_messages(target(kind), [ChatMessage("user", "someone else")])
            other.clear(target(kind))
            kept = other.save_snapshot(target(kind))
            other.add_messages(target(kind), [ChatMessage("user", "someone else again")])
            other.rollback_to_snapshot(target(kind), kept)
            after_others.append(facts(other))

    backend.meanwhile = meanwhile
    backend.lost_replies = 1
    result = CHANGES[kind](store, snapshot)
    check_receipt(kind, result, replayed=True)
    assert result.version == (1 if kind == "fork" else before + 1)
    assert facts(store) == after_others[0], "the retry changed something"


@every_kind
def test_replies_that_never_come_leave_it_unknown_and_done_once(tmp_path: Path, kind: str) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/short.db?{OPTIONS}") as store:
        snapshot = prepare(store)
        backend = make_lossy(store)
        backend.lost_replies = 1_000_000
        with gives_up_after(0.5, store), pytest.raises(MemoryStoreBackendError) as caught:
            CHANGES[kind](store, snapshot)
        assert caught.value.outcome == "unknown"
        assert backend.attempts > 1
        assert facts(store) == expected(kind, tmp_path)


def test_requests_that_never_arrive_are_not_written(tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/short.db?{OPTIONS}") as store:
        backend = make_lossy(store)
        backend.lost_requests = 1_000_000
        with gives_up_after(0.2, store), pytest.raises(MemoryStoreBackendError) as caught:
            store.add_messages(SESSION, [ChatMessage("user", "lost")])
        assert caught.value.outcome == "not_written"
        assert store.get_history(SESSION) == []


def test_one_doubtful_attempt_makes_the_outcome_unknown(tmp_path: Path) -> None:
    """The first reply is lost, and every request after it: it has landed, and nobody may say that it has not."""
    with everturn.open(f"sqlite:///{tmp_path}/short.db?{OPTIONS}") as store:
        backend = make_lossy(store)
        backend.lost_replies = 1

        def lose_all() -> None:
            backend.lost_requests = 1_000_000

        backend.meanwhile = lose_all
        with gives_up_after(0.5, store), pytest.raises(MemoryStoreBackendError) as caught:
            store.add_messages(SESSION, [ChatMessage("user", "landed")])
        assert caught.value.outcome == "unknown"
        assert [message.text for message in store.get_history(SESSION)] == ["landed"]


@every_kind
def test_a_lost_reply_runs_nothing_twice_for_a_task(path: Path, tmp_path: Path, kind: str) -> None:
    with everturn.open(f"sqlite:///{path}?{OPTIONS}") as store:
        snapshot = prepare(store)

    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{path}?{OPTIONS}") as store:
            backend = make_lossy(store)
            backend.lost_replies = 2
            check_receipt(kind, await CHANGES[kind](store, snapshot), replayed=True)
            assert backend.attempts == 3

    asyncio.run(asyncio.wait_for(story(), 60))
    with everturn.open(f"sqlite:///{path}?{OPTIONS}") as store:
        assert facts(store) == expected(kind, tmp_path)


def test_the_first_turn_of_a_session_is_written_once(store: MemoryStore) -> None:
    make_lossy(store).lost_replies = 1
    receipt = store.add_messages(SESSION, [ChatMessage("user", "first")])
    assert (receipt.version, receipt.seqs, receipt.replayed) == (1, (1,), True)
    assert len(store.get_history(SESSION)) == 1


def test_a_change_that_had_nothing_to_do_is_answered_the_same_after_a_lost_reply(store: MemoryStore) -> None:
    prepare(store)
    store.clear(SESSION)
    before = facts(store)
    make_lossy(store).lost_replies = 1
    store.clear(SESSION)
    store.trim(SESSION, max_messages=5)
    assert facts(store) == before
