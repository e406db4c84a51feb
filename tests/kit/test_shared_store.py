"""Clauses that share a place: what one has opened serves the next, unless a promise was broken there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.clause import Untested
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.runner import Chosen, Runner
from everturn.testing.kit.selection import chosen
from everturn.testing.kit.shared_store import SharedWorker
from everturn.testing.kit.target import parse
from everturn.testing.workers.messages import Step


class Trial:
    """A run, clause by clause."""

    def __init__(self, target: str) -> None:
        self.run = Environment(parse(target), seed=1, quick=True)
        self.runner = Runner(self.run, [], budget=30.0)

    def status(self, name: str) -> str:
        (one,) = chosen(CLAUSES, [name])
        return self.runner.result(one).status

    def kit(self) -> Kit:
        """Make the kit of a clause."""
        return Kit(self.run, CLAUSES[0], until=time.monotonic() + 10)

    @property
    def waiting(self) -> list[SharedWorker]:
        return self.run.shared_place._waiting


@pytest.fixture(params=["sqlite:///memory.db", "sqlite://", "tests.kit.sound.memory:tasks"])
def sound(request: pytest.FixtureRequest) -> Iterator[Trial]:
    trial = Trial(request.param)
    with trial.run:
        yield trial


@pytest.fixture
def broken() -> Iterator[Trial]:
    trial = Trial("tests.kit.stores:reads_then_writes")
    with trial.run:
        yield trial


def test_what_a_clause_has_opened_serves_the_next(sound: Trial) -> None:
    assert sound.status("order") == "holds"
    place, ((worker, slots),) = (
        sound.run.shared_place.path,
        [(one.worker.pid, set(one.slots)) for one in sound.waiting],
    )
    assert (sound.status("roles"), sound.status("append-append")) == ("holds", "holds")
    assert sound.run.shared_place.path == place
    kept = {one.worker.pid: set(one.slots) for one in sound.waiting}
    assert slots <= kept[worker]


def test_a_call_that_is_watched_is_made_by_a_worker_that_is() -> None:
    trial = Trial("sqlite:///memory.db")
    with trial.run:
        trial.status("append-append")
        before = sorted(one.worker.pid for one in trial.waiting)
        trial.status("append-trim")
        assert sorted(one.worker.pid for one in trial.waiting) == before
        assert {one.worker.watched for one in trial.waiting} == {True, False}


def test_a_broken_promise_takes_the_place_along(broken: Trial) -> None:
    assert broken.status("order") == "holds"
    place = broken.run.shared_place.path
    assert broken.status("append-append") == "broken"
    assert not place.exists()
    assert broken.waiting == []
    assert broken.status("store-and-retrieve") == "holds"
    assert broken.run.shared_place.path != place


def test_a_worker_that_died_does_not_come_back() -> None:
    trial = Trial("tests.kit.stores:dying")
    with trial.run:
        assert (trial.status("order"), trial.waiting) == ("broken", [])


def test_the_place_is_gone_with_the_run(sound: Trial) -> None:
    sound.status("order")
    place = sound.run.shared_place.path
    assert place.exists()
    sound.run.close()
    assert not place.exists()


def test_a_clause_that_opens_for_itself_has_a_place_for_itself(sound: Trial) -> None:
    sound.status("order")
    waiting = list(sound.waiting)
    assert sound.status("strange-session-ids") == "holds"
    assert sound.waiting == waiting


def test_objects_of_one_session_are_closed_with_their_clause() -> None:
    """Each may hold a connection: those of all clauses would be more than a process may have."""
    trial = Trial("tests.kit.sound.shapes:agents")
    with trial.run:
        assert (trial.status("order"), trial.status("append-append"), trial.waiting) == ("holds", "holds", [])


def test_a_clause_can_be_run_again(sound: Trial) -> None:
    """As by two points of one sweep: its sessions are new ones."""
    assert [sound.status(name) for name in ("order", "order", "append-append", "append-append@3")] == ["holds"] * 4


def test_what_a_store_keeps_for_a_thread_is_closed_with_the_clause() -> None:
    trial = Trial("tests.kit.sound.memory:threads")
    with trial.run:
        assert trial.status("append-append") == "holds"
        assert trial.status("threads-lose-nothing") == "holds"
        assert trial.waiting == []


def test_a_fault_of_the_server_leaves_nothing_that_waits() -> None:
    """A store may raise at the first call over a connection that was cut: not in a clause about something else."""
    trial = Trial("redis://")
    with trial.run:
        assert trial.status("order") == "holds"
        assert trial.waiting
        assert trial.status("backend-down") == "holds"
        assert trial.waiting == []
        assert trial.status("order") == "holds"


def test_what_a_clause_has_closed_is_not_lent_again(sound: Trial) -> None:
    kit = sound.kit()
    kit.borrow().close()
    kit.end(kept=True)
    assert [one.slots for one in sound.waiting] == [{}]
    assert sound.status("order") == "holds"


def test_what_is_opened_beside_it_is_closed_again(sound: Trial) -> None:
    kit = sound.kit()
    lent = kit.borrow()
    own = kit.open("B", beside=lent)
    kit.end(kept=True)
    assert [list(one.slots) for one in sound.waiting] == [[lent.slot]]
    assert sound.status("order") == "holds"
    assert own.worker is lent.worker


def test_an_error_of_the_kit_itself_takes_the_place_along(sound: Trial) -> None:
    def wrong(kit: Kit) -> None:
        kit.borrow()
        raise ZeroDivisionError

    found = sound.runner.result(Chosen(msgspec.structs.replace(CLAUSES[0], test=wrong, needs=())))
    assert (found.status, found.detail.partition(":")[0]) == (
        "untested",
        "the kit itself failed, please report this with the seed",
    )
    assert "ZeroDivisionError" in found.detail
    assert sound.waiting == []


def test_a_clause_that_ends_before_an_answer_does_not_spoil_the_end_of_the_run(sound: Trial) -> None:
    """ReadMessage on a store in memory with some seeds: the answer was taken for that of the next order (TypeError)."""

    def impatient(kit: Kit) -> None:
        instance = kit.open()
        instance.worker.send(instance.job(Step("read", "s")))
        raise Untested("it did not wait")

    found = sound.runner.result(Chosen(msgspec.structs.replace(CLAUSES[0], test=impatient, needs=())))
    assert (found.status, found.detail) == ("untested", "it did not wait")
    assert sound.status("order") == "holds"
