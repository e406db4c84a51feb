"""Time limits of calls: seconds that the kit waits for a worker, and the time that hanging calls have cost.

A call that hangs is waited for in full once. The next call of the same operation is given up much sooner, so that a
store with one hanging operation costs a run seconds for each clause, and every other clause still gets its time.
"""

from __future__ import annotations

import time

from everturn.testing.workers.messages import CallerSteps, Cancel, Do, ForkProcess, Interleave, Job, LosePower, Step

LONGEST_CALL = 15.0  # seconds after which a call counts as one that never returns
NEXT_LONGEST = 3.0  # the same, for an operation that did not return before in this run
LATER = 1.5  # and once it did not return twice
_PER_STEP = 0.2  # seconds more for every step of a job
_USUAL_TIMES = 20  # a slow store gets so many times what opening it took
_OF_SLOWEST = 3  # a call of an operation that hung gets so many times what the slowest that answered took
_SHORTEST = 0.05
_WORTH_NAMING = 1.0  # seconds; a call that had less time than this did not hang: the run was over


def callers_of(job: Job) -> tuple[CallerSteps, ...]:
    """List the callers of a job, in the order of its outcomes."""
    match job:
        case Do():
            return job.callers
        case Interleave():
            return (job.a, job.b)
        case Cancel() | LosePower():
            return (job.caller,)
        case ForkProcess():
            return (job.parent, job.child, job.after)
        case _:
            return ()


def steps_of(job: Job) -> list[Step]:
    """List all steps of a job."""
    return [step for caller in callers_of(job) for step in caller.steps]


class CallLimits:
    """Decides how long a job may take. One for a run: environments that run in parallel share it."""

    def __init__(self) -> None:
        self.lost = 0.0  # seconds that were spent waiting for calls that did not return
        self.usual = 0.0  # seconds that opening the target took
        self._ends = time.monotonic() + 10**6
        self._hung: dict[str, list[str]] = {}  # by operation: the clauses in which it did not return
        self._slowest: dict[str, float] = {}  # by operation: seconds of the slowest call that did return

    def end_at(self, moment: float) -> None:
        """Let no call wait beyond this moment (monotonic)."""
        self._ends = moment

    def seconds(self, job: Job | None = None) -> float:
        """Return the seconds that a job may take: few, if an operation of it has hung before."""
        steps = [] if job is None else steps_of(job)
        hangs = max((len(self._hung.get(_name(step), ())) for step in steps), default=0)
        longest = max(LONGEST_CALL, _USUAL_TIMES * self.usual)
        if hangs:  # on a busy machine one call is slow and later ones are, too: that is no reason to wait less
            slowest = max(self._slowest.get(_name(step), 0.0) for step in steps)
            longest = min(longest, max(NEXT_LONGEST if hangs == 1 else LATER, _OF_SLOWEST * slowest))
        return max(min(longest + _PER_STEP * len(steps), self._ends - time.monotonic()), _SHORTEST)

    def saw_answer(self, job: Job, took: float) -> None:
        """Note that a job returned, after so many seconds or more."""
        steps = steps_of(job)
        for name in {_name(step) for step in steps}:
            self._slowest[name] = max(self._slowest.get(name, 0.0), took / len(steps))

    def saw_hang(self, job: Job, clause: str, waited: float, at: str) -> str:
        """Note that a job did not return in time, and describe it. Its stack is told for the first hang alone.

        A job that was cut off by the end of the run did not hang, and is not noted.
        """
        steps = steps_of(job)
        what = " or ".join(dict.fromkeys(_name(step) for step in steps)) or type(job).__name__.lower()
        if waited < _WORTH_NAMING:
            return f"the time of the run was over while {what} was under way"
        self.lost += waited
        before = self._hung.get(_name(steps[0]) if steps else what, [])
        first = before[0] if before else None
        for name in {_name(step) for step in steps} or {what}:
            self._hung.setdefault(name, []).append(clause)
        told = f"it is at {at}" if first in {None, clause} else f"as in {first}, where it is told at which point"
        return f"{what} had not returned after {waited:.1f} s: {told}"


def _name(step: Step) -> str:
    return step.op
