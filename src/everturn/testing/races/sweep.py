"""Sweep: make a race happen at every point. One call is stopped at its n-th point while another completes, for every n.

The clause says which two calls race; breakpoints.py says at which points a call can be stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec

from everturn.core.numbers import count
from everturn.testing.kit.clause import Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.workers.messages import (
    CallerSteps,
    Done,
    Interleave,
    Interleaved,
    Outcome,
    Paused,
    Step,
    Stop,
    Stops,
)

Mode: TypeAlias = Literal["processes", "threads", "tasks"]
SweepMode: TypeAlias = Mode | Literal["instances", "strangers"]
"""Ways in which two calls race. Instances: two of them in one process, each in a thread or task of its own. Strangers:
two processes that were started apart, and not forked from one."""
FARTHEST = 400  # no call has more driver calls that matter
MANY_INSTRUCTIONS = 4000
LEAST_PATIENCE = 0.015  # seconds to wait for a call that may be blocked
LEAST_POINTS = 3  # in each direction, however little time there is
# (first point, stride) of each pass. Together the passes take every point; the first ones are spread over the call.
_PASSES: dict[Stops, tuple[tuple[int, int], ...]] = {
    "calls": ((2, 4), (4, 4), (1, 4), (3, 4)),
    "awaits": ((1, 1),),
    "opcodes": ((5, 13), (11, 13), (2, 13), (8, 13), (1, 13), (6, 13), (12, 13)),
}


class Race(msgspec.Struct, frozen=True):
    """Two calls on one session: `stopped` is stopped at a point, `passing` completes meanwhile, or blocks."""

    session: str
    stopped: tuple[Step, ...]
    passing: tuple[Step, ...]


def stop_at_every_call(kit: Kit, attempt: Callable[[int, str], bool], *, by: Stops = "calls") -> int:
    """Stop a call at its n-th driver call or await, for every n while there is time. Returns at how many it was
    stopped.

    `attempt` gets n and a new session, and returns False if the call ended before its n-th point.
    """
    points, end = 0, FARTHEST
    for n in _spread(kit, by):
        if n > end:
            continue
        session = kit.session()
        kit.replays[session] = f"{kit.clause.id}@{n}"
        if not attempt(n, session):
            end = n - 1
            continue
        points += 1
        if points >= LEAST_POINTS and not kit.time_left():
            break
    return points


def _spread(kit: Kit, by: Stops) -> Iterator[int]:
    """Yield the numbers of the points to stop at: all, the first ones spread over the call. A replay has one."""
    if kit.only is not None:
        yield kit.only
        return
    for first, stride in _PASSES[by]:
        yield from range(first, FARTHEST, stride)


Prepare: TypeAlias = Callable[[Instance], Race]
Ended: TypeAlias = tuple[Step, Outcome]
After: TypeAlias = Callable[[Instance, str, list[Ended]], None]


class Sweep:
    """Races of two calls in one mode: two processes, two threads, two tasks, or two instances in one process."""

    def __init__(self, kit: Kit, mode: SweepMode) -> None:
        self._kit = kit
        self.mode = mode
        self.points: dict[str, int] = {}  # how often a call was stopped, by the name of what it was about to do
        self.blocked = 0
        self.passed: list[Ended] = []  # calls that completed while another was stopped
        self._end = 0
        self._left_out = 0
        self._patience = LEAST_PATIENCE
        # A store may keep something for each thread; on a shared instance it would pile up with every clause.
        get = kit.borrow if mode in {"processes", "tasks"} else kit.open
        self.reader = get("reader")
        if mode == "processes":
            self._a, self._b = get("A", watched=True), get("B")
        elif mode == "strangers":
            self._a, self._b = get("A", watched=True), kit.open("B", stranger=True)
        else:
            self._a = get("A", beside=self.reader)
            self._b = get("B", beside=self.reader) if mode == "instances" else self._a
        self._awaits = mode == "tasks" or (mode == "instances" and kit.environment.opened.awaited)
        self._b_name = self._b.name if mode in {"processes", "strangers"} else kit.unique_name("B")

    def run(self, prepare: Prepare, after: After, *, may_fail: bool = False) -> None:
        """Race the calls at every point. `prepare` makes a fresh session for each race; `after` gets the outcomes of
        both calls, and reads the session.

        Ends when the stopped call ends before its n-th point, or when the time is over. With `may_fail`, the passing
        call may be refused even alone.
        """
        # Each call once, alone. A store that connects at its first call has then done so, and a replay stops at the
        # same point as the sweep. A call that fails even alone raises here: its error would say nothing about the race.
        self._a.values(*prepare(self.reader).stopped)
        (self._b.run if may_fail else self._b.values)(*prepare(self.reader).passing)
        by: Stops = "awaits" if self._awaits else "calls"
        seen = self._sweep(prepare, after, by)
        if self.mode in {"threads", "instances"} and not self._awaits and not seen:
            self._sweep(prepare, after, "opcodes")
        elif self._awaits and not seen and self._kit.only is None:
            for _ in range(LEAST_POINTS):  # a call that never awaits cannot be stopped; run the two one after the other
                self._race(prepare, after, 1, by)

    def _sweep(self, prepare: Prepare, after: After, by: Stops) -> int:
        seen = 0
        for n in self._numbers(by):
            at = self._race(prepare, after, n, by)
            if at is None:
                if n <= self._end:
                    self._end = n - 1
                continue
            seen += 1
            self.points[at] = self.points.get(at, 0) + 1
            if seen >= LEAST_POINTS and not self._kit.time_left():
                self._left_out += 1
                break
        return seen

    def _race(self, prepare: Prepare, after: After, n: int, by: Stops) -> str | None:
        """Run one race on a new session. Returns the name of the call at which it was stopped; None if it was not."""
        race = prepare(self.reader)
        self._kit.replays[race.session] = f"{self._kit.clause.id}@{n}"
        at, outcomes = self._run_race(race, n, by)
        if at is not None:
            self.passed += zip(race.passing, outcomes[len(race.stopped) :], strict=False)
        after(self.reader, race.session, list(zip(race.stopped + race.passing, outcomes, strict=True)))
        return at

    def _numbers(self, by: Stops) -> Iterator[int]:
        """Yield the points to stop at, as long as the call has so many.

        With little time, a few points that are spread find more than neighbours: a race is often many points wide.
        """
        self._end = MANY_INSTRUCTIONS if by == "opcodes" else FARTHEST
        if self._kit.only is not None:
            yield self._kit.only
            return
        for first, stride in _PASSES[by]:
            for n in range(first, MANY_INSTRUCTIONS, stride):
                if n > self._end:
                    break
                yield n

    def _run_race(self, race: Race, n: int, by: Stops) -> tuple[str | None, list[Outcome]]:
        if self.mode in {"processes", "strangers"}:
            return self._run_in_processes(race, n)
        kit, a = self._kit, self._a
        apart = self.mode == "instances"
        job = Interleave(
            a.slot,
            CallerSteps(a.name, race.stopped),
            CallerSteps(self._b_name, race.passing),
            n,
            by,
            self._patience,
            own=kit.opening("own", a.place) if apart and not self._awaits else None,
            passing_slot=self._b.slot if apart and self._awaits else None,
            record=kit.record(a.worker),
        )
        interleaved = kit.ask(a.worker, job, Interleaved)
        self._learn(interleaved.b, blocked=interleaved.blocked)
        return interleaved.at, [*interleaved.a, *interleaved.b]

    def _run_in_processes(self, race: Race, n: int) -> tuple[str | None, list[Outcome]]:
        kit, a, b = self._kit, self._a, self._b
        a.worker.send(a.job(*race.stopped, stop=Stop(n)))
        report = kit.any_report(a.worker)
        b.worker.send(b.job(*race.passing))
        if isinstance(report, Done):
            return None, [*report.outcomes[0], *kit.report(b.worker, Done).outcomes[0]]
        assert isinstance(report, Paused)  # noqa: S101 - the worker's protocol
        blocked = not b.worker.poll(self._patience)
        a.worker.resume()
        outcomes = kit.report(a.worker, Done).outcomes[0]
        passed = kit.report(b.worker, Done).outcomes[0]
        self._learn(passed, blocked=blocked)
        return report.at, [*outcomes, *passed]

    def _learn(self, outcomes: tuple[Outcome, ...], *, blocked: bool) -> None:
        self.blocked += blocked
        if not blocked and outcomes:
            # A busy machine must not look like a lock: wait a few times as long as the call takes here.
            took = outcomes[-1].ended - outcomes[0].began
            self._patience = min(max(LEAST_PATIENCE, 0.8 * self._patience, 4 * took), 0.25)

    def describe(self) -> str:
        """Sum up the sweep in one line."""
        if not self.points:
            return f"{self.mode}: no point to stop at is visible"
        often = sorted(self.points, key=lambda name: -self.points[name])[:3]
        total = sum(self.points.values())
        rest = ", then out of time" if self._left_out else ""
        where = f"{self.mode}: stopped at {count(total, 'point')} ({', '.join(often)}){rest}"
        return f"{where}; the other call blocked at {self.blocked}"


def modes(kit: Kit) -> list[Mode]:
    """List the modes in which two calls can race on this target. Raises Untested if there is none."""
    found: list[Mode] = [mode for mode in ("processes", "threads", "tasks") if mode in kit.environment.offered]
    if not found:
        raise Untested("nothing about this target can run side by side")
    return found
