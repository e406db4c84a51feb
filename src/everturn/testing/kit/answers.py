"""Counts how many calls of each operation a target answered, and how many it refused, during one clause.

An operation that is refused every time breaks no promise about its effects, and shows none either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from everturn.core.numbers import count
from everturn.testing.kit.call_limits import callers_of
from everturn.testing.workers.messages import Done, Fault, Interleaved, Job, Outcome, Report, Step


class Answers:
    """Answered and refused calls by operation, and by option of a call (`key`, `expected_version`)."""

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._faults: dict[str, Fault] = {}  # the first of each operation

    def count(self, job: Job, report: Report) -> None:
        """Count the calls of a job by its report. Reports without outcomes count nothing."""
        outcomes: tuple[tuple[Outcome, ...], ...] = ()
        if isinstance(report, Done):
            outcomes = report.outcomes
        elif isinstance(report, Interleaved):
            outcomes = (report.a, report.b)
        for caller, ends in zip(callers_of(job), outcomes, strict=False):
            for step, outcome in zip(caller.steps, ends, strict=False):
                self._count(step, outcome)

    def _count(self, step: Step, outcome: Outcome) -> None:
        for name in (step.op, *step.options):
            if outcome.fault is None:
                self._answered[name] += 1
            else:
                self._refused[name] += 1
                self._faults.setdefault(name, outcome.fault)

    def never_given(self, needs: Iterable[str]) -> str:
        """Name the operation among these that was called and refused every time, and its first error; else empty."""
        for name in needs:
            if self._refused[name] and not self._answered[name]:
                calls = count(self._refused[name], "call")
                return f"all of {calls} of {name} raised, so nothing is shown; the first: {self._faults[name]}"
        return ""
