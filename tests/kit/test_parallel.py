"""Clauses in parallel environments: each is run once, nothing is lost on the way, and environments share nothing."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, cast

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.parallel import MANY, MOST, work_through
from everturn.testing.kit.runner import Runner, run_all
from everturn.testing.kit.selection import chosen
from everturn.testing.kit.target import parse
from everturn.testing.servers import ServerError


class Made:
    """Stands for a run: it only says that it is a quick one, and which others were made."""

    def __init__(self, *, quick: bool = True, refuses: BaseException | None = None) -> None:
        self.quick = quick
        self.refuses = refuses
        self.outcomes = [self]

    def parallel(self) -> Made:
        if self.refuses:
            raise self.refuses
        self.outcomes.append(second := Made())
        return second


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def worked_off(run: Made, many: int, **how: Any) -> list[tuple[int, Any]]:
    done: list[tuple[int, Any]] = []

    def work(item: int, environment: Any) -> bool:
        time.sleep(0.001)
        if item == how.get("fault"):
            raise ZeroDivisionError
        done.append((item, environment))
        return item != how.get("last")

    work_through(cast("Environment", run), range(many), work)
    return done


@pytest.mark.parametrize("many", [0, 1, MANY - 1, MANY, 200])
def test_each_item_is_done_once(many: int) -> None:
    run = Made()
    done = worked_off(run, many)
    assert sorted(item for item, _ in done) == list(range(many))
    assert len(run.outcomes) == (MOST if many >= MANY else 1)
    assert {id(environment) for _, environment in done} <= {id(environment) for environment in run.outcomes}


def test_the_first_environment_begins_at_the_front_and_the_others_at_the_end() -> None:
    run = Made()
    done = worked_off(run, 100)
    mine = [item for item, environment in done if environment is run]
    theirs = [item for item, environment in done if environment is not run]
    assert mine == list(range(len(mine)))
    assert sorted(theirs) == list(range(len(mine), 100))


@pytest.mark.parametrize("processors", [{0}, {0, 1}, set(range(64))])
def test_one_processor_has_one_environment(processors: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors, raising=False)
    run = Made()
    worked_off(run, MANY)
    assert len(run.outcomes) == (1 if len(processors) == 1 else MOST)


def test_a_run_that_is_not_quick_has_one_environment() -> None:
    run = Made(quick=False)
    assert [item for item, _ in worked_off(run, 100)] == list(range(100))
    assert len(run.outcomes) == 1


@pytest.mark.parametrize("last", [3, 97])
def test_when_one_says_stop_what_is_under_way_is_done_and_no_more(last: int) -> None:
    done = worked_off(Made(), 100, last=last)
    assert last in [item for item, _ in done]
    assert len(done) < 60


@pytest.mark.parametrize("fault", [3, 97])
def test_a_fault_in_any_environment_is_raised(fault: int) -> None:
    with pytest.raises(ZeroDivisionError):
        worked_off(Made(), 100, fault=fault)


def test_without_room_for_more_servers_the_first_environment_does_it_all() -> None:
    run = Made(refuses=ServerError("no room"))
    assert [item for item, _ in worked_off(run, 100)] == list(range(100))


def test_an_environment_that_cannot_begin_for_another_reason_says_so() -> None:
    with pytest.raises(ZeroDivisionError):
        worked_off(Made(refuses=ZeroDivisionError()), 100)


def test_an_interrupt_ends_the_other_environments() -> None:
    begun: list[int] = []

    def work(item: int, _environment: Any) -> bool:
        if item == 5:
            raise KeyboardInterrupt
        begun.append(item)
        time.sleep(0.005)
        return True

    with pytest.raises(KeyboardInterrupt):
        work_through(cast("Environment", Made()), range(1000), work)
    for thread in threading.enumerate():
        if thread.name.startswith("environment"):
            thread.join(5)
            assert not thread.is_alive()
    assert len(begun) < 100


# --- the real thing --------------------------------------------------------------------------------------------------

BROKEN = "tests.kit.broken.max_plus_one:factory"


def test_the_report_is_in_the_order_of_the_contract_whatever_ended_first() -> None:
    # One race, for the store to fail: races take longer than all else.
    clauses = [one for one in chosen(CLAUSES) if one.clause.layer == "sequential" or one.clause.id == "append-append"]
    ended: list[str] = []
    with Environment(parse(BROKEN), seed=1, quick=True) as run:
        report = run_all(Runner(run, clauses, budget=10), clauses, end=lambda result: ended.append(result.id))
    ids = [one.clause.id for one in clauses]
    assert [clause.id for clause in report.clauses] == ids
    assert sorted(ended) == sorted(ids)
    assert ended != ids
    assert report.exit_code == 1


def test_environments_have_servers_and_places_of_their_own_and_go_with_the_run() -> None:
    with Environment(parse("redis://"), seed=1, quick=True) as run:
        second = run.parallel()
        assert second.fork_server is run.fork_server
        assert second.urls != run.urls
        assert second.shared_place.path != run.shared_place.path
        pids = [pid for one in (run, second) for pid in one.servers["redis_url"].pids]
        assert len(set(pids)) == len(pids) >= 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
