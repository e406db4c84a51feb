"""Random walks over all operations that a target offers, compared with a model after each step, and made shorter.

A walk is a plan without handles, so that it can be taken again with steps left out. The clause: contract/sequences.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from everturn.testing.kit.clause import describe_step
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import CallerSteps, Do, Done, Outcome, Step

SESSIONS = 2
SHRINKING = 10.0  # seconds
_WEIGHTS = {
    "append": 6,
    "keyed": 3,
    "stale": 2,
    "current": 2,
    "trim": 2,
    "clear": 1,
    "save_snapshot": 4,
    "rollback": 3,
    "delete_snapshot": 1,
    "undo": 2,
    "replace": 1,
    "pop": 1,
}
_NEEDS = {"keyed": "key", "stale": "expected_version", "current": "expected_version"}


class PlannedStep(msgspec.Struct, frozen=True):
    """One step of a walk: an operation on a session, by one of two callers. `number` chooses size, key or snapshot."""

    operation: str
    session: int
    caller: int
    number: int


class WalkFailure(msgspec.Struct, frozen=True):
    """The first step after which the store and the model differ: the story, and the number of steps up to it."""

    story: str
    session: str
    steps: int


class _Refused(Exception):
    """The store raised where the model says that it works."""


def random_walk(kit: Kit, steps: int) -> list[PlannedStep]:
    """Plan a walk over the operations that the target offers, by the seed of the clause."""
    offered = [name for name in _WEIGHTS if kit.offers(_NEEDS.get(name, name))]
    weights = [_WEIGHTS[name] for name in offered]
    dice = kit.dice
    return [
        PlannedStep(
            dice.choices(offered, weights)[0], dice.randrange(SESSIONS), dice.randrange(2), dice.randrange(1, 13)
        )
        for _ in range(steps)
    ]


def shortest(
    walker: Walker, walk: Sequence[PlannedStep], failure: WalkFailure
) -> tuple[list[PlannedStep], WalkFailure]:
    """Leave out steps, larger parts first, as long as the walk still fails. Returns the walk that is left."""
    left, until = list(walk[: failure.steps]), time.monotonic() + SHRINKING
    size = max(len(left) // 2, 1)
    while time.monotonic() < until:
        start, shorter = 0, False
        while start < len(left) and time.monotonic() < until:
            without = left[:start] + left[start + size :]
            found = walker.failure_of(without) if without else None
            if found is None:
                start += size
            else:
                left, failure, shorter = without[: found.steps], found, True
        if size == 1 and not shorter:
            break
        size = max(size // 2, 1)
    return left, failure


class Walker:
    """Takes walks on two instances of the target, in two processes where it has them."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._stores = [kit.borrow("A"), kit.borrow("B")]

    def failure_of(self, walk: Sequence[PlannedStep]) -> WalkFailure | None:
        """Take a walk on new sessions. Returns the first difference; None if there is none.

        After each step the session is read by the caller that did not take it, and at the end all are.
        """
        sessions = [_ModelSession(self._kit) for _ in range(SESSIONS)]
        calls: list[str] = []
        for number, planned in enumerate(walk, 1):
            model = sessions[planned.session]
            step = model.step(planned)
            if step is None:
                continue
            calls.append(f"{self._stores[planned.caller].name}: {describe_step(step)}")
            try:
                outcome = self._take(planned.caller, step)
                found = self._read(1 - planned.caller, model.name)
                difference = model.compare(planned, step, outcome, found)
            except _Refused as exc:
                difference = str(exc)
            if difference is not None:
                return _failure(difference, calls, model.name, number)
        for model in sessions:
            try:
                found = self._read(0, model.name)
            except _Refused as exc:
                return _failure(str(exc), calls, model.name, len(walk))
            if found != model.messages:
                return _failure(_differs(model.messages, found), calls, model.name, len(walk))
        return None

    def _take(self, caller: int, step: Step) -> Outcome:
        store: Instance = self._stores[caller]
        job = Do(store.slot, (CallerSteps(store.name, (step,)),))
        return self._kit.ask(store.worker, job, Done).outcomes[0][0]

    def _read(self, caller: int, session: str) -> list[str]:
        outcome = self._take(caller, Step("read", session))
        if outcome.fault is not None:
            raise _Refused(f"read({session!r}) raised {outcome.fault}")
        return [message.content for message in outcome.value]


def _failure(difference: str, calls: list[str], session: str, steps: int) -> WalkFailure:
    lines = [f"  {number}. {call}" for number, call in enumerate(calls, 1)]
    story = f"session {session!r}: {difference}. The shortest sequence that was found:"
    return WalkFailure("\n".join([story, *lines]), session, steps)


def _differs(wanted: list[str], found: list[str]) -> str:
    return f"a read has {_shown(found)}, and these calls lead to {_shown(wanted)}"


def _shown(contents: list[str]) -> str:
    return f"[{', '.join(contents)}]" if len(contents) <= 12 else f"[{', '.join(contents[:10])}, ... {len(contents)}]"


class _Key(msgspec.Struct):
    """A key that was used: its turn, and what a retry does. After a rollback it may store again, or not."""

    turn: tuple[SentMessage, ...]
    retry: Literal["stores", "nothing", "either"] = "stores"


class _ModelSession:
    """The model of one session: what it holds, its snapshots, its keys, the versions that are over."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.name = kit.session()
        self.messages: list[str] = []
        self._snapshots: dict[int, tuple[Any, list[str]]] = {}  # by the number in the plan: handle and state
        self._keys: dict[int, _Key] = {}
        self._latest: int | None = None  # the version of the latest receipt
        self._is_current = False  # whether that one is surely the current one
        self._over: list[int] = []
        self._undoes_to: list[str] | None = None  # the state before the latest removal, if undo leads to it

    # --- the next step -----------------------------------------------------------------------------------------------

    def step(self, planned: PlannedStep) -> Step | None:
        """Make the step, with handles of this session; None if it cannot be taken now."""
        match planned.operation:
            case "append":
                return self._append(self._turn(planned))
            case "keyed":
                key = self._keys.setdefault(planned.number % 3, _Key(self._turn(planned)))
                return self._append(key.turn, key=f"key {planned.number % 3}")
            case "stale" if self._over:
                return self._append(self._turn(planned), expected_version=self._over[planned.number % len(self._over)])
            case "current" if self._is_current and self._latest is not None:
                return self._append(self._turn(planned), expected_version=self._latest)
            case "trim" if len(self.messages) > 1:
                return Step("trim", self.name, (1 + planned.number % (len(self.messages) - 1),))
            case "save_snapshot" if self.messages and planned.number not in self._snapshots:
                return Step("save_snapshot", self.name)
            case "rollback" | "delete_snapshot" if self._snapshots:
                return Step(planned.operation, self.name, (self._snapshots[self._chosen(planned)][0],))
            case "undo" if self._undoes_to is not None:
                return Step("undo", self.name)
            case "replace":
                return Step("replace", self.name, (self._turn(planned),))
            case "clear" | "pop" if self.messages:
                return Step(planned.operation, self.name)
        return None

    def _append(self, turn: tuple[SentMessage, ...], **options: Any) -> Step:
        return Step("append", self.name, (turn,), options)

    def _turn(self, planned: PlannedStep) -> tuple[SentMessage, ...]:
        return self._kit.turn(1 + planned.number % 2)

    def _chosen(self, planned: PlannedStep) -> int:
        return min(self._snapshots, key=lambda number: (abs(number - planned.number), number))

    # --- the state after it ------------------------------------------------------------------------------------------

    def compare(self, planned: PlannedStep, step: Step, outcome: Outcome, found: list[str]) -> str | None:
        """Compare what was found with what the step leads to. Returns the difference; None if there is none, and then
        the model goes on from what was found."""
        if planned.operation == "stale":
            if outcome.ok:
                return f"{describe_step(step)} was accepted, and that version is over"
        elif outcome.fault is not None:
            return f"{describe_step(step)} raised {outcome.fault}"
        allowed = self._states_after(planned, step)
        if found not in allowed:
            return _differs(allowed[0], found)
        self._go_on(planned, outcome, found)
        return None

    def _states_after(self, planned: PlannedStep, step: Step) -> list[list[str]]:
        """List the states that the step may lead to; the first is the one to name."""
        now = self.messages
        match planned.operation:
            case "append" | "current":
                return [now + _contents(step)]
            case "keyed":
                appended = now + _contents(step)
                return {"stores": [appended], "nothing": [now], "either": [now, appended]}[
                    self._keys[planned.number % 3].retry
                ]
            case "trim":
                # A trim may keep a turn whole, and turns have two messages here; one that keeps prompts may keep more.
                least = 0 if self._kit.offers("trim_keeps_prompts") else max(0, len(now) - step.args[0] - 1)
                return [now[len(now) - step.args[0] :], *(now[start:] for start in range(least, len(now)))]
            case "clear":
                return [[]]
            case "rollback":
                return [self._snapshots[self._chosen(planned)][1]]
            case "undo":
                return [self._undoes_to or []]
            case "replace":
                return [_contents(step)]
            case "pop":
                return [now[:-1]]
        return [now]

    def _go_on(self, planned: PlannedStep, outcome: Outcome, found: list[str]) -> None:
        before, self.messages = self.messages, found
        self._undoes_to = None
        match planned.operation:
            case "stale":
                return
            case "save_snapshot":
                self._snapshots[planned.number] = (outcome.value, list(found))
            case "delete_snapshot":
                del self._snapshots[self._chosen(planned)]
            case "keyed" if found != before:
                self._keys[planned.number % 3].retry = "nothing"
            case "clear" | "trim" | "rollback" if found != before:
                self._undoes_to = before
        if planned.operation in {"rollback", "undo", "replace", "pop"}:
            for key in self._keys.values():
                key.retry = "either" if key.retry == "nothing" else key.retry
        if found == before:  # no change, or one of those that some stores count and others do not
            self._is_current = False
            return
        if self._latest is not None:
            self._over.append(self._latest)
        self._latest = outcome.value if planned.operation in {"append", "keyed", "current"} else None
        self._is_current = self._latest is not None


def _contents(step: Step) -> list[str]:
    return [sent.content for sent in step.args[0]]
