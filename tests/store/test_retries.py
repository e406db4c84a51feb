"""The store's own retries: a lost reply makes no change twice, and a request that arrives late makes none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import urandom
from typing import Any, Self

import msgspec
import pytest

from everturn import MemoryStoreBackendError, Snapshot
from everturn.backend import Append, ChangeRequest, drive
from everturn.backends._shared.server_clock import ServerClock
from everturn.core import codec
from tests.store.speech import say, user, words
from tests.store.test_exactly_once import CHANGES, _prepared, every_change


@every_change
def test_a_lost_reply_does_not_make_the_change_happen_twice(store: Any, kind: str) -> None:
    """The first reply is lost after the commit; the store's own retry must find what it did."""
    change = CHANGES[kind](store, _prepared(store))
    backend = store._operations.backend
    name = "fork" if kind == "fork" else "change"
    real = getattr(backend, name)
    lost = []

    async def losing(request: Any, deadline: float) -> Any:
        outcome = await real(request, deadline)
        if not lost:
            lost.append(outcome)
            raise MemoryStoreBackendError("the reply was lost", outcome="unknown", transient=True)
        return outcome

    version = store.info("a").version
    setattr(backend, name, losing)
    try:
        answer = change()
    finally:
        delattr(backend, name)
    assert lost
    assert answer.version == lost[0].version
    assert store.info("a").version == (version if kind == "fork" else version + 1)
    if not isinstance(answer, Snapshot):
        assert answer.replayed


@contextmanager
def _issued(moment: float) -> Iterator[None]:
    """What is sent now was issued then: a server is told the time of a request by its client."""
    window = ServerClock.window
    ServerClock.window = lambda clock, _, deadline: window(clock, moment, deadline)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ServerClock.window = window  # type: ignore[method-assign]


class Kept:
    """A network that keeps the first request, until its retry was answered or until it is released.

    `arrived` tells what then became of it: a status, or `late`. `gives_up`: its caller does not try again.
    """

    def __init__(self, store: Any, name: str = "change", *, gives_up: bool = False) -> None:
        self._store = store
        self._backend = store._operations.backend
        self._name = name
        self._real = getattr(self._backend, name)
        self._kept: list[tuple[Any, float]] = []
        self._gives_up = gives_up
        self.meanwhile: Callable[[], Any] | None = None  # others, between the retry and the first attempt
        self.arrived: list[str] = []

    def __enter__(self) -> Self:
        setattr(self._backend, self._name, self._send)
        return self

    def __exit__(self, *_: object) -> None:
        delattr(self._backend, self._name)

    async def _send(self, request: Any, deadline: float) -> Any:
        if not self._kept:
            self._kept.append((request, time.monotonic()))
            raise MemoryStoreBackendError("there was no answer", outcome="unknown", transient=not self._gives_up)
        answer = await self._real(request, deadline)
        if not self._gives_up:
            if self.meanwhile is not None:
                await self.meanwhile()
            await self._arrive(deadline)
        return answer

    async def _arrive(self, deadline: float) -> None:
        request, moment = self._kept[0]
        with _issued(moment):
            try:
                outcome = await self._real(request, deadline)
            except MemoryStoreBackendError as exc:
                self.arrived.append("late" if exc.outcome == "not_written" else exc.outcome)
            else:
                self.arrived.append(outcome.status.value)

    def release(self) -> str:
        """Let it arrive; says what became of it."""
        self._run(self._arrive(time.monotonic() + 30))
        return self.arrived[-1]

    def retry(self) -> Any:
        """Send the store's own retry, and keep on keeping the first attempt."""
        return self._run(self._real(msgspec.structs.replace(self._kept[0][0], retry=True), time.monotonic() + 30))

    def _run(self, sending: Any) -> Any:
        if hasattr(self._store, "_loop_thread"):
            return self._store._loop_thread.run(sending)
        return drive(sending)


def _seen(store: Any) -> Any:
    return store.state("a"), store.changes("a"), store.info("a")


@every_change
@pytest.mark.where(far=True)
def test_a_request_that_arrives_after_its_retry_is_too_late(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    version = store.info("a").version
    with Kept(store, "fork" if kind == "fork" else "change") as network:
        answer = change()
    assert network.arrived[0] in ("replayed", "exists", "late")
    assert len(network.arrived) == 1
    assert store.info("a").version == (version if kind == "fork" else version + 1)
    assert kind == "fork" or answer.version == version + 1
    assert store.verify().ok


@pytest.mark.where(far=True)
def test_a_session_that_a_retry_began_is_not_begun_again(store: Any) -> None:
    with Kept(store) as network:
        say(store, "a", "first")
    assert network.arrived == ["replayed"]
    assert words(store, "a") == ["first"]
    assert store.info("a").version == 1


@pytest.mark.where(far=True)
def test_what_a_retry_was_refused_is_not_done_later(store: Any) -> None:
    """Others came between the retry, which had nothing to clear, and the request that it repeated."""
    say(store, "a", "1")
    store.clear("a")
    others = ChangeRequest("a", Append([codec.encode(user("2"), "m", 1000)], 1), urandom(16), None)
    network = Kept(store)
    network.meanwhile = lambda: network._real(others, time.monotonic() + 30)
    with network:
        store.clear("a")
    assert network.arrived == ["late"]
    assert words(store, "a") == ["2"]


@pytest.mark.where(far=True)
def test_what_a_retry_was_refused_does_not_begin_a_session_later(store: Any) -> None:
    """The session was gone when the retry came, so that there was nothing to note it in."""
    say(store, "a", "1")
    with Kept(store, gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            say(store, "a", "2", expected_version=1)
        store.erase("a")
        assert network.retry().status.value == "conflict"
        assert network.release() == "late"
    assert store.get_history("a") == []


@pytest.mark.where(far=True, blocking=True)
def test_a_late_request_is_known_for_a_thousand_and_twenty_four_changes(store: Any) -> None:
    say(store, "a", "0")
    with Kept(store, gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            say(store, "a", "once")
        network.retry()
        for _ in range(1023):
            say(store, "a", "x")
        before = _seen(store)
        assert network.release() == "replayed"
        assert _seen(store) == before
        for _ in range(100):
            say(store, "a", "x")
        before = _seen(store)
        assert network.release() in ("replayed", "late")
        assert _seen(store) == before
    assert store.verify().ok


@pytest.mark.where(far=True)
def test_a_late_request_does_not_write_again_what_a_rollback_dropped(store: Any) -> None:
    """It has the key of a turn that its caller sent again, and that was then rolled back."""
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    with Kept(store, gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            say(store, "a", "2", key="k")
        say(store, "a", "2", key="k")
        store.rollback_to_snapshot("a", snapshot)
        before = _seen(store)
        assert network.release() == "late"
    assert _seen(store) == before
    assert words(store, "a") == ["1"]


@pytest.mark.where(far=True)
@pytest.mark.parametrize("edit", ["undo", "replace"])
def test_a_late_request_does_not_write_again_what_an_edit_dropped(store: Any, edit: str) -> None:
    say(store, "a", "1")
    with Kept(store, gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            store.replace("a", [user("2")], after=1, key="k")
        store.replace("a", [user("2")], after=1, key="k")
        if edit == "undo":
            store.replace("a", [], after=0)
            store.undo("a")
            store.replace("a", [], after=1)
            store.undo("a")
        store.replace("a", [], after=1)
        before = _seen(store)
        assert network.release() == "late"
    assert _seen(store) == before


@pytest.mark.where(far=True)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_late_request_does_not_bring_back_what_was_erased(store: Any, key: str | None) -> None:
    with Kept(store, gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            say(store, "a", "SECRET", key=key)
        network.retry()
        assert words(store, "a") == ["SECRET"]
        assert store.erase("a").complete
        assert network.release() == "late"
        assert store.get_history("a") == []
        assert store.sessions().sessions == ()
        say(store, "a", "another life")
        assert network.release() == "late"
    assert words(store, "a") == ["another life"]
    assert store.verify().ok


@every_change
@pytest.mark.where(far=True)
@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_retry_does_not_bring_back_what_was_erased_since_its_first_attempt(
    store: Any, kind: str, begins_anew: bool
) -> None:
    """Its first attempt was applied, the reply was lost, and the session was erased before the retry was sent."""
    change = CHANGES[kind](store, _prepared(store))
    backend = store._operations.backend
    name = "fork" if kind == "fork" else "change"
    real = getattr(backend, name)
    first: list[Any] = []
    name_erased = "b" if kind == "fork" else "a"
    others = ChangeRequest(name_erased, Append([codec.encode(user("new"), "m", 1000)], 1), urandom(16), None)

    async def losing(request: Any, deadline: float) -> Any:
        if first:
            return await real(request, deadline)
        first.append(await real(request, deadline))
        await backend.erase(name_erased, None, deadline)
        if begins_anew:
            await backend.change(others, deadline)
        raise MemoryStoreBackendError("the reply was lost", outcome="unknown", transient=True)

    setattr(backend, name, losing)
    try:
        answer = change()
    finally:
        delattr(backend, name)
    left = words(store, name_erased) if begins_anew else store.get_history(name_erased)
    assert left == (["new"] if begins_anew else [])
    assert (answer.life, answer.version) == (first[0].life, first[0].version)
    if isinstance(answer, Snapshot):
        assert answer == first[0].snapshot
    else:
        assert answer.replayed
        assert not first[0].count or answer.seqs[0] == first[0].first_seq
    assert store.verify().ok


@every_change
@pytest.mark.where(far=True)
def test_a_request_that_arrives_after_its_time_is_not_applied(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    before = _seen(store)
    with Kept(store, "fork" if kind == "fork" else "change", gives_up=True) as network:
        with pytest.raises(MemoryStoreBackendError):
            change()
        request, moment = network._kept[0]
        network._kept[0] = request, moment - 100  # longer ago than any request lives
        assert network.release() == "late"
    assert _seen(store) == before
    assert [session.session_id for session in store.sessions().sessions] == ["a"]


def test_a_trim_that_had_to_be_planned_again_is_done(store: Any) -> None:
    """Its first attempt is lost, someone edits, so the retry is refused: another plan is another call."""
    for number in range(6):
        say(store, "a", str(number))
    backend = store._operations.backend
    real = backend.change
    edit = ChangeRequest("a", Append([codec.encode(user("6"), "m", 1000)], 1, after=4), urandom(16), None)
    lost: list[Any] = []

    async def losing(request: Any, deadline: float) -> Any:
        if not lost:
            lost.append(request)
            await real(edit, deadline)
            raise MemoryStoreBackendError("the request was lost", outcome="unknown", transient=True)
        return await real(request, deadline)

    backend.change = losing
    try:
        receipt = store.trim("a", max_messages=2)
    finally:
        del backend.change
    assert words(store, "a") == ["3", "6"]
    assert receipt.version == store.info("a").version
