"""Erase: gone for good, from what is stored too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everturn import (
    CorruptEntry,
    ErasureReceipt,
    MemoryStoreBackendError,
    Record,
    SessionNotFound,
    Summary,
    ToolCall,
    VersionConflict,
)
from everturn.backend import Erasure, Reading, Status
from tests.store.places import Clock, Place
from tests.store.speech import gives_up_after, say, say_each, user, words

MARKER = "PLANTED"


def test_an_erased_session_is_absent(store: Any) -> None:
    say(store, "a", "1")
    store.erase("a")
    assert store.get_history("a") == []
    assert store.sessions().sessions == ()
    with pytest.raises(SessionNotFound):
        store.info("a")


def test_the_receipt_says_what_was_removed(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.save_snapshot("a")
    stored = store.info("a").bytes
    receipt = store.erase("a")
    assert receipt == ErasureReceipt("a", 3, 1, bytes=stored, complete=True, remains=receipt.remains)


def test_erase_counts_what_was_trimmed_cleared_and_rolled_back(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.replace("a", [user("x")], after=1)
    store.trim("a", max_messages=1)
    store.clear("a")
    assert store.erase("a").entries == 4


def test_erasing_an_absent_session_is_a_receipt_of_zeros(store: Any) -> None:
    receipt = store.erase("nobody")
    assert receipt == ErasureReceipt("nobody", 0, 0, 0, complete=True, remains=receipt.remains)


def test_erase_touches_no_other_session(store: Any) -> None:
    for name in ("a", "ab", "A", "b"):
        say(store, name, name)
    store.erase("a")
    assert [words(store, name) for name in ("ab", "A", "b")] == [["ab"], ["A"], ["b"]]
    assert store.verify().ok


def test_a_session_of_the_same_name_is_a_new_life(store: Any) -> None:
    first = say(store, "a", "1")
    store.erase("a")
    second = say(store, "a", "2")
    assert second.life != first.life
    assert (second.version, second.seqs) == (1, (1,))


def test_a_fork_outlives_the_erasure_of_its_origin(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    store.erase("a")
    assert words(store, "b") == ["1"]


def test_erase_removes_the_lives_that_expired_before(lasting: Place) -> None:
    store = lasting.open(ttl=10)
    clock = Clock()
    lasting.set_clock(store, clock)
    say_each(store, "a", f"{MARKER} 1", f"{MARKER} 2")
    clock.advance(11)
    say(store, "a", f"{MARKER} 3")
    assert store.erase("a").entries == (3 if lasting.keeps_the_expired else 1)
    assert lasting.editor.remnants(MARKER) == {}


# --- attempts --------------------------------------------------------------------------------------------------------


class Sent:
    """What a store asks its backend to erase is noted, and answered by the errors in turn; `arrive` sends it."""

    def __init__(self, store: Any, *errors: MemoryStoreBackendError) -> None:
        self._store = store
        self._backend = store._operations.backend
        self._real = self._backend.erase
        self._errors = iter(errors)
        self.attempts: list[tuple[str, str | None]] = []

    def ask(self) -> None:
        """Erase the session "a", in vain."""

        async def kept(session_id: str, life: str | None, _deadline: float) -> Erasure:
            self.attempts.append((session_id, life))
            raise next(self._errors)

        self._backend.erase = kept
        try:
            with pytest.raises(MemoryStoreBackendError):
                self._store.erase("a")
        finally:
            del self._backend.erase

    def arrive(self) -> ErasureReceipt:
        """The latest attempt reaches the backend after all."""

        async def late(_session_id: str, _life: str | None, deadline: float) -> Erasure:
            erasure: Erasure = await self._real(*self.attempts[-1], deadline)
            return Erasure(erasure.receipt)

        self._backend.erase = late
        try:
            receipt: ErasureReceipt = self._store.erase("a")
        finally:
            del self._backend.erase
        return receipt


def unanswered(*, transient: bool = False) -> MemoryStoreBackendError:
    return MemoryStoreBackendError("there was no answer", outcome="unknown", transient=transient)


def test_an_attempt_that_comes_late_erases_no_life_that_began_since(store: Any) -> None:
    say(store, "a", "1")
    sent = Sent(store, unanswered())
    sent.ask()
    assert store.erase("a").entries == 1
    say(store, "a", "2")
    assert sent.arrive().entries == 0
    assert words(store, "a") == ["2"]


def test_an_attempt_on_nothing_erases_nothing_that_began_since(store: Any) -> None:
    sent = Sent(store, unanswered())
    sent.ask()
    say(store, "a", "1")
    assert sent.arrive().entries == 0
    assert words(store, "a") == ["1"]


def test_an_attempt_that_comes_late_erases_the_life_it_was_meant_for(store: Any) -> None:
    say(store, "a", "1")
    sent = Sent(store, unanswered())
    sent.ask()
    say(store, "a", "2")
    assert sent.arrive().entries == 2
    assert words(store, "a") == []


def told(store: Any, *readings: Reading | CorruptEntry) -> Any:
    """A store whose backend tells these of the session first, or raises them; then the truth."""
    backend = store._operations.backend
    real, left = backend.read, list(readings)

    async def read(query: Any, take: Any, deadline: float) -> Reading:
        if left:
            if isinstance(first := left.pop(0), CorruptEntry):
                raise first
            return first
        truth: Reading = await real(query, take, deadline)
        return truth

    backend.read = read
    return store


def test_once_in_doubt_all_attempts_of_a_call_are_meant_for_the_same_life(place: Place) -> None:
    store = place.open()
    say(store, "a", "1")
    first = msgspec.structs.replace(store.info("a"), life="the first")  # the one that is there began since
    sent = Sent(told(store, Reading(Status.FOUND, first)), unanswered(transient=True), unanswered())
    sent.ask()
    assert sent.attempts == [("a", "the first")] * 2


def test_after_an_attempt_on_what_cannot_be_told_whatever_can_is_another(place: Place) -> None:
    store = place.open()
    say(store, "a", "1")
    damaged = CorruptEntry("nobody can tell", session_id="a", seq=0)
    sent = Sent(told(store, damaged), unanswered(transient=True), unanswered(transient=True), unanswered())
    sent.ask()
    assert sent.attempts == [("a", None), ("a", ""), ("a", "")]


@pytest.mark.parametrize("behind", ["absent", "earlier"])
def test_a_look_at_a_server_that_is_behind_hides_nothing(store: Any, behind: str) -> None:
    """A master that was just replaced still answers reads. Nothing was sent yet that could come late: look again."""
    say(store, "a", "1")
    info = msgspec.structs.replace(store.info("a"), life="0123456789abcdef")
    stale = Reading(Status.NO_SESSION) if behind == "absent" else Reading(Status.FOUND, info)
    assert told(store, stale, stale).erase("a").entries == 1
    assert words(store, "a") == []


def test_after_an_attempt_in_doubt_a_life_that_began_since_is_left_alone(store: Any) -> None:
    say(store, "a", "1")
    attempts: list[str | None] = []
    nothing = ErasureReceipt("a", 0, 0, 0, complete=True)

    async def erase(_session_id: str, life: str | None, _deadline: float) -> Erasure:
        attempts.append(life)
        if len(attempts) == 1:
            raise unanswered(transient=True)
        return Erasure(nothing, spared=True)

    store._operations.backend.erase = erase
    assert store.erase("a") == nothing
    assert len(attempts) == 2


def test_a_session_that_always_begins_anew_is_an_error_and_no_receipt(place: Place) -> None:
    store = place.open()
    say(store, "a", "1")

    async def erase(_session_id: str, _life: str | None, _deadline: float) -> Erasure:
        return Erasure(ErasureReceipt("a", 0, 0, 0, complete=True), spared=True)  # at once: no time-out is in doubt

    store._operations.backend.erase = erase
    with gives_up_after(0.2, store), pytest.raises(MemoryStoreBackendError) as raised:
        told(store, *[Reading(Status.NO_SESSION)] * 1000).erase("a")
    assert raised.value.outcome == "not_written"


def test_a_life_that_expired_is_erased_by_an_attempt_on_nothing(lasting: Place) -> None:
    store = lasting.open(ttl=10)
    clock = Clock()
    lasting.set_clock(store, clock)
    say(store, "a", MARKER)
    clock.advance(11)
    assert store.erase("a").complete
    assert lasting.editor.remnants(MARKER) == {}


# --- what is stored --------------------------------------------------------------------------------------------------


def test_the_search_for_remnants_finds_what_is_there(lasting: Place) -> None:
    say(lasting.open(), "a", MARKER)
    assert lasting.editor.remnants(MARKER, "nothing of the kind") == {MARKER: 1}


def test_nothing_of_any_part_of_a_session_is_left(lasting: Place) -> None:
    store = lasting.open()
    say(store, "bystander", "x" * 500)
    name = "NAME-OF-IT"
    store.append(
        name,
        [
            user("BODY", name="SPEAKER", metadata={"k": "METADATA"}),
            ToolCall("TOOLNAME", {"x": "ARGUMENT"}, result="RESULT"),
            Summary("SUMMARYTEXT", [1.0], (1, 1)),
            Record("RECORDKIND", {"x": "RECORDBODY"}),
        ],
        key="KEYTEXT",
    )
    snapshot = store.save_snapshot(name, "LABELTEXT")
    say(store, name, "LATER" * 1000)
    store.rollback_to_snapshot(name, snapshot)
    store.trim(name, max_messages=1)
    store.replace(name, [user("REPLACED")])
    store.clear(name)
    assert store.erase(name).complete
    markers = ["BODY", "SPEAKER", "METADATA", "TOOLNAME", "ARGUMENT", "RESULT", "SUMMARYTEXT", "RECORDKIND"]
    markers += ["RECORDBODY", "KEYTEXT", "LABELTEXT", "LATER", "REPLACED", snapshot.id]
    markers += [] if lasting.keeps_names else [name]
    assert lasting.editor.remnants(*markers) == {}
    assert words(store, "bystander") == ["x" * 500]


# --- readers that hold on ------------------------------------------------------------------------------------------

with_readers = pytest.mark.where(has_readers=True)


@with_readers
def test_erase_is_incomplete_while_a_reader_needs_the_log(lasting: Place) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with lasting.editor.reader() as sees:
        receipt = store.erase("a")
        assert (receipt.entries, receipt.complete) == (1, False)
        assert store.get_history("a") == []
        assert sees(MARKER)  # which is why the receipt said so


@with_readers
def test_erasing_again_when_the_reader_has_gone_completes_it(lasting: Place) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with lasting.editor.reader():
        store.erase("a")
    assert store.erase("a").complete
    assert lasting.editor.remnants(MARKER) == {}


@with_readers
def test_writers_go_on_while_an_erasure_is_incomplete(lasting: Place) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with lasting.editor.reader():
        store.erase("a")
        say(store, "b", "1")
        assert words(store, "b") == ["1"]


@pytest.mark.where(erases_by_age=True)
def test_a_session_is_erased_at_the_version_that_was_read_and_at_no_other(store: Any) -> None:
    read = store.add_messages("a", [user("1")])
    store.add_messages("a", [user("2")])
    for stale in (read, read.version):
        with pytest.raises(VersionConflict) as caught:
            store.erase("a", expected_version=stale)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert words(store, "a") == ["1", "2"]
    assert store.erase("a", expected_version=store.state("a")).entries == 2
    assert store.erase("a", expected_version=2).entries == 0, "an absent session is no error"


@pytest.mark.where(erases_by_age=True)
def test_a_life_that_began_since_is_not_erased_in_place_of_the_one_expected(store: Any) -> None:
    read = store.add_messages("a", [user("1")])
    store.erase("a")
    store.add_messages("a", [user("2")])
    with pytest.raises(VersionConflict, match="another life"):
        store.erase("a", expected_version=read)
    assert words(store, "a") == ["2"]
