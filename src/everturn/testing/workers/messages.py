"""What the kit and its worker processes say to each other: orders one way, reports the other. Frozen values only.

Who sends them is in controller.py, who obeys in worker.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

SideBySide: TypeAlias = Literal["alone", "threads", "tasks"]

Stops: TypeAlias = Literal["calls", "opcodes", "awaits"]
"""Where a lane can be stopped: at its driver calls, at any instruction of Python code, or where it awaits."""


class Step(msgspec.Struct, frozen=True):
    """One operation of a Dialect, on one session (or none)."""

    op: str
    session: str | None = None
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


class Fault(msgspec.Struct, frozen=True):
    """What a call raised. Only its own words say that nothing was written."""

    kind: str
    text: str
    not_written: bool
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class Outcome(msgspec.Struct, frozen=True):
    """How a step ended: with a value, or with a fault. `began` and `ended` are monotonic seconds."""

    value: Any = None
    fault: Fault | None = None
    began: float = 0.0
    ended: float = 0.0

    @property
    def ok(self) -> bool:
        return self.fault is None


class Lane(msgspec.Struct, frozen=True):
    """Steps that one caller takes, one after the other. `who` names it in histories."""

    who: str
    steps: tuple[Step, ...]


# --- orders ----------------------------------------------------------------------------------------------------------


class Stop(msgspec.Struct, frozen=True):
    """Stop at the n-th place, counted from the first step: pause there until told to go on, or die there by -9."""

    n: int
    action: Literal["pause", "kill"] = "pause"


class Open(msgspec.Struct, frozen=True):
    """Open an instance at a place, with the options that the factory offers, and call it `slot`."""

    slot: str
    where: str
    options: Mapping[str, Any] = {}
    stop: Stop | None = None


class Close(msgspec.Struct, frozen=True):
    """Close an instance. One that was never opened is closed already."""

    slot: str


class Do(msgspec.Struct, frozen=True):
    """Run lanes on one instance: one in the order's own thread, several as threads or as tasks.

    With `own`, each thread opens an instance of its own. `record` is the file of the history. `start_at` is when all
    lanes begin (monotonic). `die` kills the process after the last step has been acknowledged.
    """

    slot: str
    lanes: tuple[Lane, ...]
    mode: SideBySide = "alone"
    own: Open | None = None
    record: str | None = None
    start_at: float = 0.0
    stop: Stop | None = None
    die: bool = False


class Duel(msgspec.Struct, frozen=True):
    """Two lanes in one process: stop `a` at its n-th place, let `b` complete or block for `patience`, let `a` go on."""

    slot: str
    a: Lane
    b: Lane
    n: int
    by: Stops
    patience: float
    own: Open | None = None
    record: str | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Run the lane as a task, and cancel it where it awaits for the n-th time."""

    slot: str
    lane: Lane
    n: int
    record: str | None = None


class Limit(msgspec.Struct, frozen=True):
    """Set the process's own limit: how large a file may get, how many more files may be opened. None: as at first."""

    what: Literal["fsize", "nofile"]
    value: int | None


class Fork(msgspec.Struct, frozen=True):
    """Fork with the instance `slot` open: the child opens its own and runs `child`; meanwhile this process runs
    `parent`, and closes its instance when the child is through; the child then runs `after`.

    The report has the lanes in this order: parent, child, after. Those of a child that did not get so far are empty.
    """

    slot: str
    opening: Open
    parent: Lane
    child: Lane
    after: Lane
    record: str | None = None


class Power(msgspec.Struct, frozen=True):
    """Open an instance on a disk that loses power at its n-th sync (before it, or after it), and run the lane."""

    opening: Open
    lane: Lane
    n: int
    moment: Literal["before", "after"]
    record: str | None = None


class Tell(msgspec.Struct, frozen=True):
    """Call the factory's own `corrupt` or `cleanup`, with those of the options that it takes."""

    what: Literal["corrupt", "cleanup"]
    where: str
    session: str | None = None
    options: Mapping[str, Any] = {}


class Modules(msgspec.Struct, frozen=True):
    """Say which modules were imported since the process began."""


class Resume(msgspec.Struct, frozen=True):
    """Go on after a pause."""


Order: TypeAlias = Open | Close | Do | Duel | Cancel | Limit | Fork | Power | Tell | Modules | Resume


# --- reports ---------------------------------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """What the instance is: its shape, whether it is awaited, the operations it offers."""

    shape: str
    unit: str
    awaited: bool
    operations: frozenset[str]
    twins: bool = False


class Paused(msgspec.Struct, frozen=True):
    """Stopped at the n-th place; `at` says which call it is about to make."""

    n: int
    at: str


class Done(msgspec.Struct, frozen=True):
    """How the lanes' steps ended; a lane ends at the first step that could not be tried."""

    lanes: tuple[tuple[Outcome, ...], ...]
    stops: int = 0  # places passed where it could have been stopped


class Dueled(msgspec.Struct, frozen=True):
    """How both lanes ended. `at` is where `a` was stopped; None: it ended before its n-th place."""

    a: tuple[Outcome, ...]
    b: tuple[Outcome, ...]
    at: str | None
    blocked: bool = False


class Cut(msgspec.Struct, frozen=True):
    """Whether the power went at the n-th sync; if not, it went after the lane. The process is of no more use."""

    lost: bool


class Loaded(msgspec.Struct, frozen=True):
    """Modules, by name, in the order of their import."""

    names: tuple[str, ...]


class Failed(msgspec.Struct, frozen=True):
    """The order could not be carried out. `hopeless`: no order of this kind ever will (an object with no shape)."""

    fault: Fault
    hopeless: bool = False


class Ready(msgspec.Struct, frozen=True):
    """Done, and there is nothing to say."""


Report: TypeAlias = Opened | Paused | Done | Dueled | Cut | Loaded | Failed | Ready
