"""Runs some hundreds of simulated worlds; `make simulate SEEDS=...` runs as many as you like.

A seed that fails is told as a story, shrunk. A schedule that once failed is kept in stories/, and must not fail again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.simulation.keyspace import COMMANDS, Keyspace
from tests.simulation.records import TOLERATED
from tests.simulation.report import report
from tests.simulation.running import BACKENDS, Runner
from tests.simulation.schedules import Schedule, make
from tests.simulation.shrink import shrink
from tests.tiers import first

STORIES = sorted((Path(__file__).parent / "stories").glob("*.json"))
AT_ONCE = 50
SEEDS = {"redis": 300, "sqlite": 200, "postgres": 100}


@pytest.fixture(scope="module", params=BACKENDS)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with Runner(request.param) as runner:
        yield runner


@pytest.mark.parametrize(
    ("runner", "from_"),
    [case for backend in BACKENDS for case in first(2, [(backend, at) for at in range(0, SEEDS[backend], AT_ONCE)])],
    indirect=["runner"],
)
def test_nothing_is_found_in_any_of_these_worlds(runner: Runner, from_: int) -> None:
    calls = answered = 0
    for seed in range(from_, from_ + AT_ONCE):
        outcome = runner.run(make(seed, runner.backend))
        calls, answered = calls + outcome.calls, answered + outcome.answered
        wrong = [finding for finding in outcome.findings if finding.kind not in TOLERATED]
        if wrong:
            pytest.fail(report(shrink(outcome, wrong[0].kind, runner.run)), pytrace=False)
    assert answered >= calls / 2  # a world in which nothing works proves nothing


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_schedule_that_failed_once_does_not_fail_again(path: Path) -> None:
    schedule = msgspec.json.decode(path.read_bytes(), type=Schedule)
    with Runner(schedule.backend) as runner:
        outcome = runner.run(schedule)
    assert not outcome.kinds() - TOLERATED, report(outcome)


def test_a_seed_runs_the_same_again(runner: Runner) -> None:
    for seed in range(5):
        first, second = (runner.run(make(seed, runner.backend)) for _ in range(2))
        assert first.story == second.story
        again = runner.run(msgspec.structs.replace(first.schedule, deliveries=first.deliveries))
        assert again.story == first.story  # and so it does when its deliveries are written down


def test_a_disk_that_fills_takes_changes_before_and_after_and_runs_the_same_elsewhere() -> None:
    made = [make(seed, "sqlite") for seed in range(100)]
    schedules = [schedule for schedule in made if any(fault.kind == "full" for fault in schedule.faults)]
    with Runner("sqlite") as here:
        outcomes = [here.run(schedule) for schedule in schedules]
    with Runner("sqlite") as there:
        assert [there.run(schedule).story for schedule in schedules] == [outcome.story for outcome in outcomes]
    assert any("the disk" in what for outcome in outcomes for _, _, what in outcome.story)
    assert all(2 * outcome.answered >= outcome.calls for outcome in outcomes)


# --- the simulator itself: it must be able to fail, and to say why ---------------------------------------------------


def _found(runner: Runner, kinds: set[str], seeds: int) -> tuple[str, Schedule]:
    for seed in range(seeds):
        outcome = runner.run(make(seed, runner.backend))
        found = outcome.kinds() & kinds
        if found:
            kind = min(found)
            shrunk = shrink(outcome, kind, runner.run)
            assert kind in shrunk.kinds()
            assert kind.upper() in report(shrunk)
            assert len(shrunk.schedule.ops) <= len(outcome.schedule.ops)
            return kind, shrunk.schedule
    raise AssertionError(f"none of {sorted(kinds)} in {seeds} seeds")


def test_a_server_without_a_clock_is_found_to_take_late_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def time(_: Keyspace) -> list[bytes]:
        return [b"1800000000", b"0"]

    monkeypatch.setitem(COMMANDS, b"TIME", (time, False))
    with Runner("redis") as runner:
        _, schedule = _found(runner, {"late", "behind rollback", "dropped came back", "erased came back"}, 400)
        assert len(schedule.ops) <= 6


def test_a_server_that_forgets_what_it_acknowledged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real, writes = COMMANDS[b"XADD"]
    count = 0

    def forgetful(space: Keyspace, key: bytes, *rest: bytes) -> bytes:
        nonlocal count
        count += 1
        before = space.image()
        reply: bytes = real(space, key, *rest)
        if count % 40 == 0:
            space.load(before)
        return reply

    monkeypatch.setitem(COMMANDS, b"XADD", (forgetful, writes))
    with Runner("redis") as runner:
        for seed in range(50):
            if runner.run(make(seed, "redis")).kinds() - TOLERATED:
                return
    raise AssertionError("nothing was found")
