"""What a copy does where the target has a session of that name: the same, an earlier version of it, or another."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn.backend import Status
from everturn.store.operations import Operations
from everturn.transfer import copy
from tests.integration.copying.circle import in_a_circle
from tests.integration.copying.talks import assert_alike, facts, fill, go_on, say
from tests.store.places import Place


def the_one_conflict(here: Any, there: Any, look: Any = facts) -> str:
    """Why the session "a" is a conflict. It was left as it was, on both sides."""
    before = [(store.info("a"), look(store, "a")) for store in (here, there)]
    report = everturn.copy(here, there)
    assert [(store.info("a"), look(store, "a")) for store in (here, there)] == before
    ((session_id, why),) = report.conflicts
    assert (session_id, report.ok, report.imported, report.extended) == ("a", False, 0, 0)
    return why


# --- an earlier version ----------------------------------------------------------------------------------------------


def change_all(store: Any, names: list[str]) -> None:
    """Turns, another branch, and a change of everything that points into the log."""
    for name in names:
        snapshot = store.save_snapshot(name, "between two copies")
        say(store, name, "1", "2", key="between")
        store.rollback_to_snapshot(name, snapshot)
        say(store, name, "3")
        store.trim(name, max_messages=1)
        store.set_ttl(name, 7200)
        store.save_snapshot(name, "later")
        store.delete_snapshot(name, snapshot)


@in_a_circle
def test_an_earlier_version_is_extended(source: Place, target: Place) -> None:
    here, there = source.open(), target.open()
    names = fill(here)
    everturn.copy(here, there)
    change_all(here, names[:4])
    report = everturn.copy(here, there)
    assert (report.extended, report.skipped, report.verified) == (4, len(names) - 4, len(names))
    assert_alike(here, there, *names[:4])
    assert there.verify().ok
    assert go_on(there, "rich") == go_on(here, "rich")


def test_an_earlier_version_is_staged_anew_where_much_is_to_be_added(
    target: Place, beside: Any, small_steps: None
) -> None:
    there = target.open()
    names = fill(beside)
    everturn.copy(beside, there)
    change_all(beside, names)
    assert everturn.copy(beside, there).extended == len(names)
    assert_alike(beside, there, *names)
    assert there.verify().ok
    assert go_on(there, "rich") == go_on(beside, "rich")


def test_an_earlier_version_is_extended_again_and_again(target: Place, beside: Any) -> None:
    there = target.open()
    for number in range(5):
        say(beside, "a", f"turn {number}", key=f"k{number}")
        if number % 2:
            beside.replace("a", [], after=number)
        everturn.copy(beside, there)
        assert_alike(beside, there, "a")


def test_what_was_deleted_or_taken_back_in_the_source_goes_from_the_target(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1", "2")
    snapshot = beside.save_snapshot("a")
    beside.clear("a")
    everturn.copy(beside, there)
    assert (there.info("a").snapshots, there.info("a").undo_steps) == (1, 1)
    beside.delete_snapshot("a", snapshot)
    beside.undo("a")
    assert everturn.copy(beside, there).extended == 1
    assert (there.info("a").snapshots, there.info("a").undo_steps) == (0, 0)
    assert_alike(beside, there, "a")


def test_what_the_target_has_reclaimed_does_not_come_back_and_is_not_missed(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1")
    snapshot = beside.save_snapshot("a")
    for number in range(30):
        say(beside, "a", f"dropped {number}")
    beside.rollback_to_snapshot("a", snapshot)
    for _ in range(10):
        beside.clear("a")
        say(beside, "a", "kept")
    everturn.copy(beside, there)
    assert there.compact("a").entries == 30
    say(beside, "a", "2")
    assert everturn.copy(beside, there).extended == 1
    assert there.state("a") == beside.state("a")
    assert there.verify().ok
    assert go_on(there, "a")[:-1] == go_on(beside, "a")[:-1]  # but for what there is to reclaim


def test_a_session_far_behind_is_extended_too(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1")
    everturn.copy(beside, there)
    for number in range(copy.AT_ONCE):
        say(beside, "a", f"turn {number}", f"and {number}")
    report = everturn.copy(beside, there)
    assert (report.extended, report.verified) == (1, 1)
    assert there.state("a") == beside.state("a")
    assert there.info("a").bytes == beside.info("a").bytes
    assert there.verify().ok
    there.compact()
    assert target.editor.entries() == 1 + 2 * copy.AT_ONCE  # what was replaced is gone


# --- conflicts -------------------------------------------------------------------------------------------------------


def test_a_session_that_went_on_in_the_target_is_a_conflict(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1")
    everturn.copy(beside, there)
    say(there, "a", "2")
    assert "copy the other way round" in the_one_conflict(beside, there)
    assert everturn.copy(there, beside).extended == 1
    assert_alike(there, beside, "a")


def test_sessions_that_went_different_ways_are_a_conflict_in_both_directions(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1")
    everturn.copy(beside, there)
    say(beside, "a", "here")
    say(there, "a", "there")
    assert "by another change" in the_one_conflict(beside, there)
    assert "by another change" in the_one_conflict(there, beside)
    say(beside, "a", "here again")
    assert "different ways" in the_one_conflict(beside, there)
    assert "different ways" in the_one_conflict(there, beside)


def test_ways_that_differ_by_a_trim_alone_are_a_conflict(target: Place, beside: Any) -> None:
    there = target.open()
    for text in ("1", "2", "3"):
        say(beside, "a", text)
    everturn.copy(beside, there)
    there.trim("a", max_messages=1)
    beside.trim("a", max_messages=1)
    say(beside, "a", "4")
    assert "different ways" in the_one_conflict(beside, there)


def test_another_session_of_that_name_is_a_conflict(target: Place, beside: Any) -> None:
    there = target.open()
    say(beside, "a", "1")
    say(there, "a", "1")
    assert "life of its own" in the_one_conflict(beside, there)
    assert "life of its own" in the_one_conflict(there, beside)


def test_what_nobody_remembers_is_a_conflict(beside: Any) -> None:
    with everturn.open("sqlite://") as there:
        say(beside, "a", "1")
        everturn.copy(beside, there)
        for number in range(1100):
            say(beside, "a", f"turn {number}")
        beside.compact("a")  # forgets all but the latest 1,024
        look = everturn.MemoryStore.state
        assert "too far apart to prove" in the_one_conflict(beside, there, look)
        assert "too far apart to prove" in the_one_conflict(there, beside, look)
        there.erase("a")
        assert everturn.copy(beside, there).imported == 1
        assert there.state("a") == beside.state("a")


def test_a_conflict_stops_no_other_session(target: Place, beside: Any) -> None:
    there = target.open()
    for name in "abc":
        say(beside, name, "1")
    say(there, "b", "another")
    report = everturn.copy(beside, there)
    assert (report.imported, report.verified, [name for name, _ in report.conflicts]) == (2, 2, ["b"])
    assert there.state("c") == beside.state("c")


def test_an_expired_session_is_not_in_the_way(target: Place, beside: Any) -> None:
    from tests.store.places import Clock

    there, clock = target.open(), Clock()
    say(beside, "a", "1")
    beside.save_snapshot("a")
    beside.set_ttl("a", 100)
    target.set_clock(there, clock)
    everturn.copy(beside, there)
    say(beside, "a", "2")
    clock.advance(200)
    assert everturn.copy(beside, there).imported == 1  # with the snapshot that the dead one had
    assert_alike(beside, there, "a")
    while there.compact().sessions:
        pass
    assert_alike(beside, there, "a")


# --- in the moment between -------------------------------------------------------------------------------------------


class Between:
    """A target's backend; `meddle` is called once, right before something is restored in it."""

    def __init__(self, backend: Any, meddle: Any) -> None:
        self._backend = backend
        self._meddle = meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def restore(self, arrival: Any, deadline: float) -> Any:
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()
        return await self._backend.restore(arrival, deadline)


def meddled(store: Any, meddle: Any) -> Any:
    """Another face of the same store."""
    operations: Operations = store._operations
    return everturn.MemoryStore(Between(operations.backend, meddle), operations.settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1, 2], ids=["absent", "ancestor"])
def test_who_begins_or_changes_it_in_the_last_moment_is_not_overwritten(
    target: Place, beside: Any, number: int, steps: None
) -> None:
    there = target.open()
    say(beside, "a", "1")
    if number == 2:
        everturn.copy(beside, there)
    say(beside, "a", *map(str, range(20)))
    report = everturn.copy(beside, meddled(there, lambda: say(there, "a", "in the last moment")))
    assert [name for name, _ in report.conflicts] == ["a"]
    assert there.get_history("a")[-1].content == "in the last moment"
    assert len(there.get_history("a")) == number
    assert there.verify().ok


def test_two_copies_at_once_are_one(target: Place, beside: Any, small_steps: None) -> None:
    there = target.open()
    names = fill(beside)
    report = everturn.copy(beside, meddled(there, lambda: everturn.copy(beside, there)))
    assert (report.ok, report.verified) == (True, len(names))
    assert_alike(beside, there, *names)
    assert there.verify().ok


def test_who_erases_it_in_the_last_moment_gets_it_anew(target: Place, beside: Any, steps: None) -> None:
    there = target.open()
    say(beside, "a", *map(str, range(20)))
    everturn.copy(beside, there)
    say(beside, "a", *map(str, range(20)))
    report = everturn.copy(beside, meddled(there, lambda: there.erase("a")))
    assert (report.ok, report.verified) == (True, 1)
    assert_alike(beside, there, "a")
    assert there.verify().ok


def test_who_puts_a_twin_in_its_place_in_the_last_moment_keeps_it(target: Place, beside: Any, steps: None) -> None:
    """A twin: of the same life, at the same version, by another change."""
    there = target.open()
    say(beside, "a", "1")
    with everturn.open("sqlite://") as elsewhere:
        everturn.copy(beside, elsewhere)
        say(elsewhere, "a", "the twin")
        say(beside, "a", "2")
        everturn.copy(beside, there)
        say(beside, "a", *map(str, range(20)))

        def swap() -> None:
            there.erase("a")
            everturn.copy(elsewhere, there)

        report = everturn.copy(beside, meddled(there, swap))
    assert "different ways" in report.conflicts[0][1]
    assert [message.content for message in there.get_history("a")] == ["1", "the twin"]


def test_an_answer_that_is_lost_is_found_again(target: Place, beside: Any, steps: None) -> None:
    from everturn import MemoryStoreBackendError

    there = target.open()
    operations: Operations = there._operations
    lost = []

    class Lossy(Between):
        async def restore(self, arrival: Any, deadline: float) -> Any:
            outcome = await self._backend.restore(arrival, deadline)
            if not lost:
                lost.append(outcome.status)
                raise MemoryStoreBackendError("no answer", outcome="unknown", transient=True)
            return outcome

        async def stage(self, request: Any, deadline: float) -> Any:
            await self._backend.stage(request, deadline)
            return await self._backend.stage(request, deadline)

    names = fill(beside)
    lossy = everturn.MemoryStore(Lossy(operations.backend, None), operations.settings)  # type: ignore[arg-type]
    report = everturn.copy(beside, lossy)
    assert lost == [Status.APPLIED]
    assert (report.imported, report.skipped, report.verified) == (len(names), 0, len(names))
    assert_alike(beside, there, *names)
