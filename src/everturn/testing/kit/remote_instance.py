"""One opened instance of the target, as a clause uses it: the store itself is in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everturn.testing.kit.clause import StoreRaised
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.controller import WorkerProcess
from everturn.testing.workers.messages import (
    CallerSteps,
    Do,
    Done,
    Limit,
    ModelAction,
    Opened,
    Outcome,
    Ready,
    SetClock,
    Step,
    Stop,
)

if TYPE_CHECKING:
    from everturn.testing.kit.kit import Kit


def succeeded(steps: Sequence[Step], outcomes: Sequence[Outcome]) -> list[Any]:
    """Return the values of the steps. Raises StoreRaised for the first step that failed."""
    for step, outcome in zip(steps, outcomes, strict=True):
        if outcome.fault is not None:
            raise StoreRaised(step, outcome.fault)
    return [outcome.value for outcome in outcomes]


class Instance:
    """One opened instance of the target, in a worker process. Its calls raise StoreRaised when the store raises.

    `name` is its name in the history.
    """

    def __init__(self, kit: Kit, worker: WorkerProcess, slot: str, place: Path, name: str) -> None:
        self._kit = kit
        self.worker = worker
        self.slot = slot
        self.place = place
        self.name = name
        self.opened: Opened

    # --- operations --------------------------------------------------------------------------------------------------

    def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        return self.value(Step("append", session, (tuple(messages),), options))

    def read(self, session: str) -> list[ReadMessage]:
        found: list[ReadMessage] = self.value(Step("read", session))
        return found

    def trim(self, session: str, most: int) -> None:
        self.value(Step("trim", session, (most,)))

    def clear(self, session: str) -> None:
        self.value(Step("clear", session))

    def save_snapshot(self, session: str) -> Any:
        return self.value(Step("save_snapshot", session))

    def rollback(self, session: str, snapshot: Any) -> None:
        self.value(Step("rollback", session, (snapshot,)))

    def call(self, op: str, session: str | None = None, *args: Any, **options: Any) -> Any:
        """Call any other operation of the shape."""
        return self.value(Step(op, session, args, options))

    def value(self, step: Step) -> Any:
        return self.values(step)[0]

    def take(self, step: Step) -> Outcome:
        """Take one step and return its outcome, a fault too.

        To check what was stored, use `read` instead: a read that fails is missing in the history, and a history
        without reads shows no violation.
        """
        return self.run(step)[0]

    def take_unrecorded(self, step: Step) -> Outcome:
        """Take one step without recording it, for contents that cannot be ids in a history."""
        return self._kit.ask(self.worker, Do(self.slot, (CallerSteps(self.name, (step,)),)), Done).outcomes[0][0]

    def run(self, *steps: Step) -> tuple[Outcome, ...]:
        """Take several steps in one job."""
        return self._kit.ask(self.worker, self.job(*steps), Done).outcomes[0]

    def values(self, *steps: Step) -> list[Any]:
        """Take several steps in one job; return their values. Raises StoreRaised for the first that failed."""
        return succeeded(steps, self.run(*steps))

    def job(
        self,
        *steps: Step,
        stop: Stop | None = None,
        start_at: float = 0.0,
        die: bool = False,
        model: ModelAction = "answer",
    ) -> Do:
        """Make the job of these steps, to be sent without waiting for it."""
        caller, record = CallerSteps(self.name, steps), self._kit.record(self.worker)
        return Do(self.slot, (caller,), record=record, stop=stop, start_at=start_at, die=die, model=model)

    # --- the process -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the instance in the normal way. Does nothing the second time."""
        self._kit.close(self)

    def kill(self) -> None:
        """Kill its process with -9, and with it every other instance in that process."""
        self.worker.end()

    def set_clock(self, seconds: float) -> None:
        """Let the clock of its process differ by so many seconds from the machine's, until the clause ends."""
        self.worker.used_up = True
        self._kit.ask(self.worker, SetClock(seconds), Ready)

    def limit(self, what: Any, value: int | None) -> None:
        self._kit.ask(self.worker, Limit(what, value), Ready)
