"""Stored values: lives of sessions in plain lists and dicts, and the entries that a state shows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import RLock

from everturn.backend import At, Jump, LeaseRow, Range, State, Status, StoredEffect, UndoStep, reach
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
class Remembered:
    """A change that was made, and the state after it (None once an entry that it shows was reclaimed)."""

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
    changes: list[Remembered] = field(default_factory=list)  # oldest first
    effects: dict[str, StoredEffect] = field(default_factory=dict)  # by key
    facts: dict[str, str] = field(default_factory=dict)  # that set_facts set

    def copy(self) -> Life:
        """Copy it for a change: if the change fails, the copy is thrown away."""
        return replace(
            self,
            jumps=list(self.jumps),
            snapshots=dict(self.snapshots),
            undo=list(self.undo),
            changes=list(self.changes),
            effects=dict(self.effects),
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
            self.facts,
        )

    @property
    def roots(self) -> dict[str, State]:
        """Name every state that the session can return to."""
        snapshots = {f"snapshot {name}": state for name, (_, state) in self.snapshots.items()}
        steps = {f"the undo step of version {step.id}": step.before for step in self.undo}
        return {"the head": self.state} | snapshots | steps

    def state_at(self, at: At) -> State | Status:
        """Find the state at a snapshot or a version, or now. Returns the Status that says why there is none."""
        if at is None:
            return self.state
        if isinstance(at, str):
            return self.snapshots[at][1] if at in self.snapshots else Status.NO_SNAPSHOT
        known = {change.version: change.state for change in self.changes} | {0: State()}
        return known.get(at) or Status.NO_VERSION


Log = dict[int, Entry]


class Memory:
    """All sessions of one URL. Whoever holds the lock sees one moment, and changes it in one step."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.lives: dict[tuple[str, str], Life] = {}  # by namespace and session id
        self.logs: dict[str, Log] = {}  # by life
        self.leases: dict[tuple[str, str], LeaseRow] = {}  # as `lives`; also of sessions that do not exist


def seqs_of(ranges: Iterable[Range]) -> list[int]:
    """List the seqs in some ranges, in order."""
    return [seq for first, last in ranges for seq in range(first, last + 1)]


def shown(life: Life, log: Log, *states: State) -> tuple[list[int], list[int]]:
    """List the seqs that these states show: entries that must be there, and summaries in the trimmed part."""
    reached = reach(states, life.jumps)
    must = seqs_of(reached.whole)
    trimmed = set(seqs_of(reached.summaries)) - set(must)
    return must, [seq for seq in sorted(trimmed) if seq in log and log[seq].kind == SUMMARY]
