"""What the toy stores: the lives of sessions, in plain lists and dicts, and what a state shows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import RLock

from everturn.backend import At, Jump, Range, State, Status, reach
from everturn.model import SUMMARY, SessionInfo, Snapshot


@dataclass(frozen=True)
class Entry:
    """A stored entry."""

    kind: str
    turn: int
    created_at: float
    checksum: int
    body: bytes


@dataclass(frozen=True)
class Made:
    """A change that was made, and the state after it; None once that cannot be shown any more."""

    version: int
    kind: str
    seqs: tuple[int, ...]
    created_at: float
    call: bytes
    key: bytes | None
    content: bytes | None
    snapshot: str | None
    label: str | None
    state: State | None


@dataclass(frozen=True)
class UndoStep:
    """What undo would take back: the head right after it, how many messages it hid, and the state before it."""

    version: int
    kind: str
    moved_to: int
    hidden: int
    before: State


@dataclass
class Life:
    """One life of a session, but for its log."""

    session_id: str
    life: str
    ttl: float | None
    created_at: float
    forked_from: str | None = None
    version: int = 0
    last_seq: int = 0
    state: State = field(default_factory=State)
    bytes: int = 0
    dimension: int | None = None
    changed_at: float = 0.0
    expires_at: float | None = None
    jumps: list[Jump] = field(default_factory=list)  # newest first
    snapshots: dict[str, tuple[Snapshot, State]] = field(default_factory=dict)
    undo: list[UndoStep] = field(default_factory=list)
    changes: list[Made] = field(default_factory=list)  # oldest first

    def copy(self) -> Life:
        """One that can be changed, and thrown away if it turns out that it may not."""
        return replace(
            self,
            jumps=list(self.jumps),
            snapshots=dict(self.snapshots),
            undo=list(self.undo),
            changes=list(self.changes),
        )

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(
            self.session_id,
            self.life,
            self.version,
            self.state.messages,
            self.last_seq,
            self.bytes,
            len(self.snapshots),
            len(self.undo),
            self.created_at,
            self.changed_at,
            self.ttl,
            self.expires_at,
            self.forked_from,
        )

    @property
    def roots(self) -> dict[str, State]:
        """Every state the session can return to, by what to call it."""
        snapshots = {f"snapshot {name}": state for name, (_, state) in self.snapshots.items()}
        steps = {f"the undo step of version {step.version}": step.before for step in self.undo}
        return {"the head": self.state} | snapshots | steps

    def state_at(self, at: At) -> State | Status:
        if at is None:
            return self.state
        if isinstance(at, str):
            return self.snapshots[at][1] if at in self.snapshots else Status.NO_SNAPSHOT
        known = {made.version: made.state for made in self.changes} | {0: State()}
        return known.get(at) or Status.NO_VERSION


Log = dict[int, Entry]


class Memory:
    """What all stores of one name share. Whoever holds the lock sees one moment, and changes it in one step."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.lives: dict[tuple[str, str], Life] = {}
        self.logs: dict[str, Log] = {}  # by the life they are of


def seqs_of(ranges: Iterable[Range]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


def shown(life: Life, log: Log, *states: State) -> tuple[list[int], list[int]]:
    """The seqs that these states show: those that must be there, and summaries of what was trimmed."""
    reached = reach(states, life.jumps)
    must = seqs_of(reached.whole)
    trimmed = set(seqs_of(reached.summaries)) - set(must)
    return must, [seq for seq in sorted(trimmed) if seq in log and log[seq].kind == SUMMARY]
