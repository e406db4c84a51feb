"""Messages between the kit and its worker processes: jobs one way, reports the other. Frozen values only.

controller.py sends jobs, worker.py runs them and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

SideBySide: TypeAlias = Literal["alone", "threads", "tasks"]

ModelAction: TypeAlias = Literal["answer", "pause", "fail", "die"]
"""The end of a compaction's first call of its model: at once, after `Resume`, by an error, or by kill -9."""

Stops: TypeAlias = Literal["calls", "opcodes", "awaits"]
"""Points at which a caller can be stopped: driver calls, instructions of Python code, or awaits."""


class Step(msgspec.Struct, frozen=True):
    """One operation of a shape (`shapes.base.Shape`), on one session or on none."""

    op: str
    session: str | None = None
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


class Fault(msgspec.Struct, frozen=True):
    """An error that a call raised. `not_written` only if the error itself says that nothing was written."""

    kind: str
    text: str
    not_written: bool
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class Outcome(msgspec.Struct, frozen=True):
    """The end of a step: a value, or a fault. `began` and `ended` are monotonic seconds."""

    value: Any = None
    fault: Fault | None = None
    began: float = 0.0
    ended: float = 0.0

    @property
    def ok(self) -> bool:
        return self.fault is None


class CallerSteps(msgspec.Struct, frozen=True):
    """Steps that one caller takes, one after the other. `who` is the caller's name in histories."""

    who: str
    steps: tuple[Step, ...]


# --- jobs ------------------------------------------------------------------------------------------------------------


class Stop(msgspec.Struct, frozen=True):
    """Stop at the n-th point, counted from the first step: pause there until `Resume`, or die there of kill -9."""

    n: int
    action: Literal["pause", "kill"] = "pause"


class Open(msgspec.Struct, frozen=True):
    """Open an instance at a place, with the options that the factory offers, and call it `slot`."""

    slot: str
    where: str
    options: Mapping[str, Any] = {}
    stop: Stop | None = None


class Close(msgspec.Struct, frozen=True):
    """Close an instance. Does nothing for a slot that was never opened."""

    slot: str


class Do(msgspec.Struct, frozen=True):
    """Run callers on one instance: one in the worker's main thread, several as threads or as tasks.

    With `own`, each thread opens an instance of its own. `record` is the file of the history. All callers begin at
    `start_at` (monotonic). `die` kills the process after the last step has been acknowledged. `model` is what the
    model does if one of the steps is a compaction; with `pause` it reports `Paused`.
    """

    slot: str
    callers: tuple[CallerSteps, ...]
    mode: SideBySide = "alone"
    own: Open | None = None
    record: str | None = None
    start_at: float = 0.0
    stop: Stop | None = None
    die: bool = False
    model: ModelAction = "answer"


class Interleave(msgspec.Struct, frozen=True):
    """Run two callers in one process: stop `a` at its n-th point, let `b` end, or block for `patience`; resume `a`.

    With `own`, each of two threads opens an instance of its own; with `passing_slot`, `b` is a task on that instance.
    """

    slot: str
    a: CallerSteps
    b: CallerSteps
    n: int
    by: Stops
    patience: float
    own: Open | None = None
    passing_slot: str | None = None
    record: str | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Run the caller as a task, and cancel it at its n-th await."""

    slot: str
    caller: CallerSteps
    n: int
    record: str | None = None


class Limit(msgspec.Struct, frozen=True):
    """Limit the worker process: the size of a file, or how many more files it may open. None: as at its start."""

    what: Literal["fsize", "nofile"]
    value: int | None


class SetClock(msgspec.Struct, frozen=True):
    """Let the wall clock of the worker process differ by so many seconds from the machine's."""

    seconds: float


class Measure(msgspec.Struct, frozen=True):
    """Measure the resources of the worker process."""


class ForkProcess(msgspec.Struct, frozen=True):
    """Call `os.fork` with the instance `slot` open. The child opens its own instance and runs `child`; meanwhile the
    parent runs `parent`. When the child is done, the parent closes its instance, and the child runs `after`.

    The report has the outcomes of parent, child and after; empty for a part that the child did not reach.
    """

    slot: str
    opening: Open
    parent: CallerSteps
    child: CallerSteps
    after: CallerSteps
    record: str | None = None


class LosePower(msgspec.Struct, frozen=True):
    """Open an instance on a disk that loses power at its n-th sync (before it, or after it), and run the caller."""

    opening: Open
    caller: CallerSteps
    n: int
    moment: Literal["before", "after"]
    record: str | None = None


class FactoryHook(msgspec.Struct, frozen=True):
    """Call the factory's `corrupt` or `cleanup`, with the options that its signature takes."""

    what: Literal["corrupt", "cleanup"]
    where: str
    session: str | None = None
    options: Mapping[str, Any] = {}


class Modules(msgspec.Struct, frozen=True):
    """Report the modules that were imported since the process began."""


class Resume(msgspec.Struct, frozen=True):
    """Resume after a pause, with the clock set to differ by so many seconds from the machine's."""

    clock: float | None = None


CallJob: TypeAlias = Do | Interleave | Cancel | ForkProcess | LosePower
"""Jobs that make calls of the store."""

Job: TypeAlias = CallJob | Open | Close | Limit | SetClock | Measure | FactoryHook | Modules | Resume


# --- reports ---------------------------------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """Description of an opened instance: its shape, whether it is awaited, the operations it offers."""

    shape: str
    unit: str
    awaited: bool
    operations: frozenset[str]
    twins: bool = False


class Paused(msgspec.Struct, frozen=True):
    """Stopped at the n-th point; `at` names the call that comes next."""

    n: int
    at: str


class Done(msgspec.Struct, frozen=True):
    """Outcomes of each caller's steps. A caller ends at the first step that could not be tried."""

    outcomes: tuple[tuple[Outcome, ...], ...]
    stops: int = 0  # points passed at which it could have been stopped
    model_calls: int = 0  # how often compactions asked their model


class Interleaved(msgspec.Struct, frozen=True):
    """Outcomes of both callers. `at` names the point at which `a` was stopped; None if it ended before."""

    a: tuple[Outcome, ...]
    b: tuple[Outcome, ...]
    at: str | None
    blocked: bool = False


class PowerOutcome(msgspec.Struct, frozen=True):
    """`lost` if the power went at the n-th sync; otherwise it went after the caller. The worker is unusable."""

    lost: bool


class Loaded(msgspec.Struct, frozen=True):
    """Modules, by name, in the order of their import."""

    names: tuple[str, ...]


class Usage(msgspec.Struct, frozen=True):
    """Resources of a process: open file handles (connections are among them), threads, bytes of memory."""

    handles: int
    threads: int
    memory: int


class Failed(msgspec.Struct, frozen=True):
    """The job failed. `hopeless`: every job of this kind would fail (an object with no known shape)."""

    fault: Fault
    hopeless: bool = False


class Ready(msgspec.Struct, frozen=True):
    """Done; nothing to report."""


Report: TypeAlias = Opened | Paused | Done | Interleaved | PowerOutcome | Usage | Loaded | Failed | Ready
