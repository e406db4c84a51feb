"""Keys: a caller's retry finds its first attempt, for every kind of change, for as long as that attempt stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import urandom
from typing import Any, Self

import msgspec
import pytest

from everturn import InvalidInput, MemoryStoreBackendError, Record, Snapshot, Summary, ToolCall, VersionConflict
from everturn.backend import Append, ChangeRequest, drive
from everturn.backends._shared.server_clock import ServerClock
from everturn.core import codec
from tests.store.places import Place
from tests.store.speech import in_another_process, say, say_each, user, words

Change = Callable[..., Any]


def _prepared(store: Any) -> dict[str, Any]:
    """A session in which every kind of change has something to do."""
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a", "early")
    say_each(store, "a", "4", "5", "6")
    store.trim("a", max_messages=5)  # something to undo
    return {"snapshot": snapshot}


CHANGES: dict[str, Callable[[Any, dict[str, Any]], Change]] = {
    "add_messages": lambda s, _: lambda **o: s.add_messages("a", [user("7"), user("8")], **o),
    "append": lambda s, _: lambda **o: s.append("a", [user("7"), Record("step", {"n": 1})], **o),
    "save_context": lambda s, _: lambda **o: s.save_context("a", "q", "a", **o),
    "add_tool_call": lambda s, _: lambda **o: s.add_tool_call("a", ToolCall("f", {"x": 1}), **o),
    "add_summary": lambda s, _: lambda **o: s.add_summary("a", Summary("s", [1.0, 2.0], (1, 2)), **o),
    "replace": lambda s, _: lambda **o: s.replace("a", [user("7")], after=5, **o),
    "replace-by-nothing": lambda s, _: lambda **o: s.replace("a", [], after=5, **o),
    "clear": lambda s, _: lambda **o: s.clear("a", **o),
    "trim": lambda s, _: lambda **o: s.trim("a", max_messages=2, **o),
    "undo": lambda s, _: lambda **o: s.undo("a", **o),
    "rollback": lambda s, p: lambda **o: s.rollback_to_snapshot("a", p["snapshot"], **o),
    "snapshot": lambda s, _: lambda **o: s.save_snapshot("a", "late", **o),
    "delete_snapshot": lambda s, p: lambda **o: s.delete_snapshot("a", p["snapshot"], **o),
    "set_ttl": lambda s, _: lambda **o: s.set_ttl("a", 1000, **o),
    "fork": lambda s, _: lambda **o: s.fork("a", "b", **o),
}
OTHERS: dict[str, Callable[[Any, dict[str, Any]], Change]] = {
    "add_messages": lambda s, _: lambda **o: s.add_messages("a", [user("7"), user("other")], **o),
    "append": lambda s, _: lambda **o: s.append("a", [user("7"), Record("step", {"n": 2})], **o),
    "save_context": lambda s, _: lambda **o: s.save_context("a", "q", "other", **o),
    "add_tool_call": lambda s, _: lambda **o: s.add_tool_call("a", ToolCall("f", {"x": 2}), **o),
    "add_summary": lambda s, _: lambda **o: s.add_summary("a", Summary("s", [1.0, 3.0], (1, 2)), **o),
    "replace": lambda s, _: lambda **o: s.replace("a", [user("7")], after=4, **o),
    "replace-by-nothing": lambda s, _: lambda **o: s.replace("a", [], after=4, **o),
    "clear": lambda s, _: lambda **o: s.undo("a", **o),
    "trim": lambda s, _: lambda **o: s.trim("a", max_messages=3, **o),
    "undo": lambda s, _: lambda **o: s.clear("a", **o),
    "rollback": lambda s, p: lambda **o: s.delete_snapshot("a", p["snapshot"], **o),
    "snapshot": lambda s, _: lambda **o: s.save_snapshot("a", "other", **o),
    "delete_snapshot": lambda s, p: lambda **o: s.rollback_to_snapshot("a", p["snapshot"], **o),
    "set_ttl": lambda s, _: lambda **o: s.set_ttl("a", 2000, **o),
    "fork": lambda s, _: lambda **o: s.fork("a", "b", at=1, **o),
}
every_change = pytest.mark.parametrize("kind", list(CHANGES))


def _same(first: Any, again: Any) -> bool:
    """Whether `again` is the replay of `first`. (A Snapshot has no `replayed`: it is the very same one.)"""
    if isinstance(first, Snapshot):
        return bool(again == first)
    return again.replayed and not first.replayed and _place(first) == _place(again)


def _place(receipt: Any) -> tuple[Any, ...]:
    return receipt.session_id, receipt.life, receipt.version, receipt.seqs


@every_change
def test_the_same_key_replays_with_the_first_receipt(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    first = change(key="k")
    after_first = store.state("a"), store.state("b")
    assert _same(first, change(key="k"))
    assert (store.state("a"), store.state("b")) == after_first


@every_change
def test_a_replay_finds_its_receipt_behind_later_changes(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    first = change(key="k")
    say_each(store, "a", "later", "later still")
    store.save_snapshot("a")
    assert _same(first, change(key="k"))


@every_change
def test_a_key_reused_with_other_content_is_refused(store: Any, kind: str) -> None:
    prepared = _prepared(store)
    CHANGES[kind](store, prepared)(key="k")
    before = store.state("a")
    with pytest.raises(InvalidInput, match=r"^key: ") as caught:
        OTHERS[kind](store, prepared)(key="k")
    assert caught.value.path == "key"
    assert store.state("a") == before


@every_change
def test_the_key_is_looked_up_before_the_version_is_compared(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    version = store.info("a").version
    first = change(key="k", expected_version=version)
    say(store, "a", "later")
    assert _same(first, change(key="k", expected_version=version))


@every_change
def test_a_stale_version_keeps_a_new_key_out(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    version = store.info("a").version
    before = store.state("a")
    with pytest.raises(VersionConflict) as caught:
        change(key="k", expected_version=version - 1)
    assert (caught.value.expected, caught.value.actual) == (version - 1, version)
    assert store.state("a") == before
    assert not getattr(change(key="k"), "replayed", False)


def test_without_a_key_the_same_turn_is_written_twice(store: Any) -> None:
    say_each(store, "a", "again", "again")
    assert words(store, "a") == ["again", "again"]


def test_keys_belong_to_their_session(store: Any) -> None:
    say(store, "a", "one", key="k")
    assert not say(store, "b", "two", key="k").replayed


def test_a_key_used_for_one_kind_of_change_is_refused_for_another(store: Any) -> None:
    say(store, "a", "one", key="k")
    with pytest.raises(InvalidInput, match="key"):
        store.clear("a", key="k")


def test_a_message_from_the_store_is_the_same_content_as_the_one_that_went_in(store: Any) -> None:
    say(store, "a", "one", key="k")
    assert store.add_messages("a", store.get_history("a"), key="k").replayed


@pytest.mark.where(shared=True)
def test_a_turn_is_found_by_its_key_from_another_process(lasting: Place) -> None:
    first = say(lasting.open(), "a", "one", key="k")
    script = """
        import everturn
        receipt = everturn.open(argv[0]).add_messages("a", [everturn.ChatMessage("user", "one")], key="k")
        print(receipt.version, receipt.seqs[0], receipt.replayed)
    """
    assert in_another_process(script, lasting.url).split() == [str(first.version), str(first.seqs[0]), "True"]


# --- keys and the path ------------------------------------------------------------------------------------------


def test_after_a_rollback_that_dropped_the_turn_the_key_writes_again(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    assert not say(store, "a", "2", key="k").replayed
    assert words(store, "a") == ["1", "2"]


def test_after_a_rollback_that_dropped_the_turn_the_key_may_write_something_else(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    assert not say(store, "a", "other", key="k").replayed
    assert words(store, "a") == ["1", "other"]


def test_a_rollback_that_kept_the_turn_keeps_its_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    assert _same(first, say(store, "a", "1", key="k"))


def test_rolled_forward_again_the_key_replays(store: Any) -> None:
    say(store, "a", "1")
    early = store.save_snapshot("a")
    first = say(store, "a", "2", key="k")
    late = store.save_snapshot("a")
    store.rollback_to_snapshot("a", early)
    store.rollback_to_snapshot("a", late)
    assert _same(first, say(store, "a", "2", key="k"))


def test_each_branch_remembers_its_own_use_of_a_key(store: Any) -> None:
    say(store, "a", "1")
    start = store.save_snapshot("a")
    on_left = say(store, "a", "left", key="k")
    left = store.save_snapshot("a")
    store.rollback_to_snapshot("a", start)
    on_right = say(store, "a", "right", key="k")
    right = store.save_snapshot("a")
    store.rollback_to_snapshot("a", left)
    assert _same(on_left, say(store, "a", "left", key="k"))
    store.rollback_to_snapshot("a", right)
    assert _same(on_right, say(store, "a", "right", key="k"))
    with pytest.raises(InvalidInput):
        say(store, "a", "left", key="k")


def test_after_undoing_the_rollback_the_key_replays(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    first = say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    store.undo("a")
    assert _same(first, say(store, "a", "2", key="k"))


def test_a_turn_that_was_replaced_may_be_written_again(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", "2", key="k")
    store.replace("a", [], after=1)
    assert not say(store, "a", "2", key="k").replayed


def test_trim_does_not_hide_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    say_each(store, "a", "2", "3")
    store.trim("a", max_messages=1)
    assert _same(first, say(store, "a", "1", key="k"))


def test_clear_does_not_hide_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    store.clear("a")
    assert _same(first, say(store, "a", "1", key="k"))
    assert words(store, "a") == []


def test_compact_does_not_forget_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    say_each(store, "a", "2", "3")
    store.trim("a", max_messages=1)
    store.compact()
    assert _same(first, say(store, "a", "1", key="k"))


def test_a_new_life_knows_no_keys_of_the_last(store: Any) -> None:
    say(store, "a", "1", key="k")
    store.erase("a")
    assert not say(store, "a", "other", key="k").replayed


@pytest.mark.where(blocking=True)
def test_a_key_is_remembered_for_a_thousand_and_twenty_four_changes(store: Any) -> None:
    first = say(store, "a", "first", key="k")
    for _ in range(1023):
        say(store, "a", "x")
    store.compact()
    assert _same(first, say(store, "a", "first", key="k"))


@pytest.mark.where(blocking=True)
def test_a_key_is_remembered_as_long_as_its_turn_can_be_reached(store: Any) -> None:
    first = say(store, "a", "first", "and more", key="k")
    later = say(store, "a", "later", key="l")
    snapshot = store.save_snapshot("a")
    for _ in range(1100):
        say(store, "a", "x")
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    with pytest.raises(InvalidInput, match="key"):
        say(store, "a", "other", key="k")
    store.compact("a")
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    store.replace("a", [], after=first.seqs[-1])
    assert not say(store, "a", "not later", key="l").replayed, "its turn is not on the path"
    store.compact("a")
    store.rollback_to_snapshot("a", snapshot)
    assert _same(later, say(store, "a", "later", key="l"))
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    assert store.verify("a").ok


@pytest.mark.parametrize("key", ["", "x" * 513, "\0", "\ud800", 7, b"k"])
def test_a_key_that_is_no_key_is_refused(one_store: Any, key: object) -> None:
    with pytest.raises(InvalidInput, match=r"^key: "):
        say(one_store, "a", "one", key=key)
    assert one_store.get_history("a") == []


# --- the store's own retries -----------------------------------------------------------------------------------


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


def test_a_key_of_a_change_without_a_turn_is_remembered_however_many_follow(store: Any) -> None:
    """A clear or a rollback that is made once more, long after, would take away all that came since."""
    say(store, "a", "first")
    snapshot = store.save_snapshot("a")
    say(store, "a", "second")
    back = store.rollback_to_snapshot("a", snapshot, key="back")
    cleared = store.clear("a", key="clear")
    for number in range(1100):
        say(store, "a", str(number))
    store.compact("a")
    assert _same(back, store.rollback_to_snapshot("a", snapshot, key="back"))
    assert _same(cleared, store.clear("a", key="clear"))
    assert len(store.get_history("a")) == 1100
    assert store.verify("a").ok
