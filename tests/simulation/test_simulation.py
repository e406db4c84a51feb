"""Runs some hundreds of simulated worlds; `make simulate SEEDS=...` runs as many as you like.

A seed that fails is told as a story, shrunk. A schedule that once failed is kept in stories/, and must not fail again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everturn.backends._shared.steady_clock import Clock
from tests.simulation.keyspace import COMMANDS, Keyspace
from tests.simulation.records import TOLERATED
from tests.simulation.redis_server import RedisServer
from tests.simulation.report import report
from tests.simulation.running import BACKENDS, Runner
from tests.simulation.schedules import Schedule, make
from tests.simulation.shrink import shrink
from tests.simulation.world import World
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


def _edit_scripts(monkeypatch: pytest.MonkeyPatch, edits: dict[bytes, bytes], in_: bytes) -> None:
    """Let the simulated Redis run the scripts that have a text `in_` with other lines."""
    real = RedisServer._script

    def script(server: RedisServer, text: bytes, rest: list[bytes]) -> Any:
        if in_ in text:
            for old, new in edits.items():
                assert old in text
                text = text.replace(old, new)
        return real(server, text, rest)

    monkeypatch.setattr(RedisServer, "_script", script)


def _without_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Redis apply requests whenever they come, as before docs/decisions/020-late-requests.md."""
    edits = {
        b"if not_after ~= '' and (now > tonumber(not_after) or now < issued) then return at .. LATE end": b"",
        b"return fence and issued < fence": b"return false",
    }
    _edit_scripts(monkeypatch, edits, in_=b"local not_after, issued")


def _without_receipts_in_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Redis forget the calls of an erased session, as before docs/decisions/027-retries-behind-an-erasure.md."""
    edits = {b"if fence and (is_retry or not life) then": b"if false then"}
    _edit_scripts(monkeypatch, edits, in_=b"local function refused(")


def _one_call_for_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trim plan again under the same call id, and Redis remember that a retry of that call was refused."""
    began = World.__init__
    worlds: list[World] = []

    def begin(world: World, schedule: Schedule) -> None:
        worlds[:] = [world]
        began(world, schedule)

    def call() -> bytes:
        task = worlds[0].scheduler.task
        assert task is not None
        return b"%016d" % task.tag.id

    monkeypatch.setattr(World, "__init__", begin)
    monkeypatch.setattr("everturn.store.trim.new_call", call)
    edits = {
        b"  if is_retry then\n": b"  if is_retry then if status == 'moved' then call('HSET', META, ARGV[1], '1') end\n",
        b"if is_behind(fence) then return at .. LATE end": b"if is_behind(fence) then return at .. LATE end\n"
        b"if call('HEXISTS', META, ARGV[1]) == 1 then return at .. ' unchanged - 0 0 0 0' end",
    }
    _edit_scripts(monkeypatch, edits, in_=b"local function refused(")


def _believing_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite believe whatever its machine's clock shows, as before docs/decisions/021-clocks.md."""
    real = Clock.__init__
    monkeypatch.setattr(Clock, "__init__", lambda clock, wall=time.time, _=None: real(clock, wall, None))


def _without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Redis and SQLite apply changes whatever lease they name."""
    claim = b"not lease_functions().is_claimed(claim, now)"
    _edit_scripts(monkeypatch, {claim: b"false"}, in_=b"local function refused(")
    monkeypatch.setattr("everturn.backends.sqlite.leases.is_fenced_off", lambda *_: False)


def _beginning_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Redis and SQLite begin an effect again that is started."""
    line = b"before.status ~= 'failed' and not (before.status == 'started' and before.attempt == ARGV[14])"
    _edit_scripts(monkeypatch, {line: b"before.status == 'finished'"}, in_=b"'begin_effect', state")
    monkeypatch.setattr("everturn.core.plan_change._may_repeat", lambda before, _: before.status == "started")


@pytest.mark.parametrize(
    ("backend", "take_out", "seed", "kind", "calls"),
    [
        ("redis", _one_call_for_all_plans, 2045, "not done", 8),
        ("redis", _without_lateness, 542, "dropped came back, keyed", 6),
        ("redis", _without_lateness, 585, "erased came back, keyed", 6),
        ("redis", _without_receipts_in_tombstones, 17, "doubled", 3),
        ("sqlite", _believing_steps, 122, "expired early", 3),
        ("sqlite", _believing_steps, 217, "wrong read", 3),
        ("redis", _without_fence, 1, "fence broken", 3),
        ("sqlite", _without_fence, 27, "fence broken", 3),
        ("redis", _beginning_twice, 8, "begun twice", 4),
        ("sqlite", _beginning_twice, 39, "begun twice", 4),
    ],
)
def test_a_mechanism_that_is_taken_out_is_missed_by_the_first_seed_that_needs_it(
    backend: str,
    take_out: Callable[[pytest.MonkeyPatch], None],
    seed: int,
    kind: str,
    calls: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seeds of docs/decisions/028-simulation-findings.md: each fails, shrinks, and then runs the same again."""
    with Runner(backend) as runner:
        assert kind not in runner.run(make(seed, backend)).kinds()
        take_out(monkeypatch)
        outcome = runner.run(make(seed, backend))
        assert kind in outcome.kinds()
        smallest = shrink(outcome, kind, runner.run)
        assert len(smallest.schedule.ops) <= calls
        written = msgspec.json.decode(msgspec.json.encode(smallest.schedule), type=Schedule)
        again = runner.run(written)
        assert (again.story, again.findings) == (smallest.story, smallest.findings)


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
