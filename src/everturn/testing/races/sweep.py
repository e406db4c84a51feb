"""Finds races by construction: one call is stopped at its n-th point while another completes, for every n.

What the two calls are is the clause's business; where a call can be stopped, breakpoints.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec

from everturn.testing.kit.clause import Untested
from everturn.testing.kit.kit import Instance, Kit
from everturn.testing.workers.messages import Done, Duel, Dueled, Lane, Outcome, Paused, Step, Stop, Stops

Mode: TypeAlias = Literal["processes", "threads", "tasks"]
FARTHEST = 400  # no call has more driver calls that matter
MANY_INSTRUCTIONS = 4000
LEAST_PATIENCE = 0.015  # seconds that a blocked call is waited for
LEAST_POINTS = 3  # in each direction, however little time there is
# Each pass takes every so manieth point: together they take all, and the first ones are spread over the whole call.
_PASSES: dict[Stops, tuple[tuple[int, int], ...]] = {
    "calls": ((2, 4), (4, 4), (1, 4), (3, 4)),
    "awaits": ((1, 1),),
    "opcodes": ((5, 13), (11, 13), (2, 13), (8, 13), (1, 13), (6, 13), (12, 13)),
}


class Meeting(msgspec.Struct, frozen=True):
    """Two calls on one session: `stopped` is stopped half-way, `passing` completes meanwhile (or blocks)."""

    session: str
    stopped: tuple[Step, ...]
    passing: tuple[Step, ...]


def spread(kit: Kit) -> Iterator[int]:
    """The numbers of a sweep over driver calls: all in the end, and the first ones spread over the whole. A replay
    takes the one it was told."""
    if kit.only is not None:
        yield kit.only
        return
    for first, stride in _PASSES["calls"]:
        yield from range(first, FARTHEST, stride)


Prepare: TypeAlias = Callable[[Instance], Meeting]
Ended: TypeAlias = tuple[Step, Outcome]
After: TypeAlias = Callable[[Instance, str, list[Ended]], None]


class Sweep:
    """One way to let calls meet: two processes, two threads, or two tasks."""

    def __init__(self, kit: Kit, mode: Mode) -> None:
        self._kit = kit
        self.mode = mode
        self.points: dict[str, int] = {}  # how often a call was stopped, by the name of what it was about to do
        self.blocked = 0
        self._end = 0
        self._left_out = 0
        self._patience = LEAST_PATIENCE
        # Of what a store keeps for each thread, there would be more with every clause.
        get = kit.open if mode == "threads" else kit.borrow
        self.reader = get("reader")
        if mode == "processes":
            self._a, self._b = get("A", watched=True), get("B")
        else:
            self._a = get("A", beside=self.reader)
            self._b = self._a
        self._b_name = self._b.name if mode == "processes" else kit.unique_name("B")

    def run(self, prepare: Prepare, after: After) -> None:
        """Let the calls meet at every point. `prepare` makes a fresh session for each meeting; `after` gets the
        outcomes of both calls, and reads what has become of the session.

        Stops when the stopped call ends before its n-th point, or when the time for it is over.
        """
        # Each once, alone: what connects at its first call has done so, and a replay stops where the sweep did. And
        # what cannot be done even alone would meet nothing: its errors are no answers.
        self._a.values(*prepare(self.reader).stopped)
        self._b.values(*prepare(self.reader).passing)
        by: Stops = "awaits" if self.mode == "tasks" else "calls"
        seen = self._sweep(prepare, after, by)
        if self.mode == "threads" and not seen:
            self._sweep(prepare, after, "opcodes")
        elif self.mode == "tasks" and not seen and self._kit.only is None:
            for _ in range(LEAST_POINTS):  # a call that never awaits cannot be stopped, and may still follow another
                self._meeting(prepare, after, 1, by)

    def _sweep(self, prepare: Prepare, after: After, by: Stops) -> int:
        seen = 0
        for n in self._numbers(by):
            at = self._meeting(prepare, after, n, by)
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

    def _meeting(self, prepare: Prepare, after: After, n: int, by: Stops) -> str | None:
        """One meeting, on a session of its own. Returns what the call was about to do when it was stopped, or None."""
        meeting = prepare(self.reader)
        self._kit.replays[meeting.session] = f"{self._kit.clause.id}@{n}"
        at, outcomes = self._meet(meeting, n, by)
        after(self.reader, meeting.session, list(zip(meeting.stopped + meeting.passing, outcomes, strict=True)))
        return at

    def _numbers(self, by: Stops) -> Iterator[int]:
        """The points to stop at, as long as the call has so many.

        With little time, a few of them are better spread than side by side: a race is often as wide as it is rare.
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

    def _meet(self, meeting: Meeting, n: int, by: Stops) -> tuple[str | None, list[Outcome]]:
        if self.mode == "processes":
            return self._meet_in_processes(meeting, n)
        kit, a = self._kit, self._a
        order = Duel(
            a.slot,
            Lane(a.name, meeting.stopped),
            Lane(self._b_name, meeting.passing),
            n,
            by,
            self._patience,
            record=kit.record(a.worker),
        )
        dueled = kit.ask(a.worker, order, Dueled)
        self._learn(dueled.b, blocked=dueled.blocked)
        return dueled.at, [*dueled.a, *dueled.b]

    def _meet_in_processes(self, meeting: Meeting, n: int) -> tuple[str | None, list[Outcome]]:
        kit, a, b = self._kit, self._a, self._b
        a.worker.send(a.order(*meeting.stopped, stop=Stop(n)))
        report = kit.any_report(a.worker)
        b.worker.send(b.order(*meeting.passing))
        if isinstance(report, Done):
            return None, [*report.lanes[0], *kit.report(b.worker, Done).lanes[0]]
        assert isinstance(report, Paused)  # noqa: S101 - the worker's protocol
        blocked = not b.worker.poll(self._patience)
        a.worker.resume()
        outcomes = kit.report(a.worker, Done).lanes[0]
        passed = kit.report(b.worker, Done).lanes[0]
        self._learn(passed, blocked=blocked)
        return report.at, [*outcomes, *passed]

    def _learn(self, outcomes: tuple[Outcome, ...], *, blocked: bool) -> None:
        self.blocked += blocked
        if not blocked and outcomes:
            # A busy machine must not look like a lock: wait for a few times what the call takes here.
            took = outcomes[-1].ended - outcomes[0].began
            self._patience = min(max(LEAST_PATIENCE, 0.8 * self._patience, 4 * took), 0.25)

    def say(self) -> str:
        """What was done, in one line."""
        if not self.points:
            return f"{self.mode}: no point to stop at is visible"
        common = sorted(self.points, key=lambda name: -self.points[name])[:3]
        total = sum(self.points.values())
        rest = ", then out of time" if self._left_out else ""
        where = f"{self.mode}: stopped at {total} points ({', '.join(common)}){rest}"
        return f"{where}; the other call blocked at {self.blocked}"


def modes(kit: Kit) -> list[Mode]:
    """The ways in which two calls can meet on this target. Raises Untested if there is none."""
    found: list[Mode] = [mode for mode in ("processes", "threads", "tasks") if mode in kit.target.offered]
    if not found:
        raise Untested("nothing about this target can run side by side")
    return found
