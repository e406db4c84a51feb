"""The row of a session, read and checked, and the path that leads to its head.

Shared by every module that changes or reads a session. It writes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everturn.backends._shared.verification import damaged_jump, unreadable_session
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.core.paths import Jump, Range, State
from everturn.core.requests import REMEMBERED
from everturn.core.signal_exceptions import is_interruption

SQL = statements.load("session_row.sql")
_LOAD = SQL["load_session"]
_LATEST_JUMPS = SQL["latest_jumps"]
FIRST_JUMPS, MOST_JUMPS = 4, 256  # fetched by one statement of a walk: a statement costs as much as four rows
UNREADABLE = (ValueError, TypeError, msgspec.MsgspecError)  # raised by a row that was changed by hand


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """The row of a live session."""

    no: int
    life: str
    version: int
    last_seq: int
    state: State
    bytes: int
    dimension: int | None
    ttl: float | None
    expires_at: float | None = None

    @property
    def base(self) -> int:
        """The number that is added to a seq or version to make a row's id."""
        return self.no << 32

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest id of the session's rows, in a table keyed by seq or version."""
        return span(self.no)


def span(no: int) -> tuple[int, int]:
    return no << 32, (no << 32) + 0xFFFFFFFF


def load(db: Connection, session_id: str, now: float) -> SessionRow | None:
    """Load the live session of this name; None if there is none or it has expired.

    Raises CorruptEntry if its row, or the index of names, is not as it was written.
    """
    try:
        row = db.execute(_LOAD, (db.namespace, session_id)).fetchone()
        if row is None:
            refuse_damaged_index(db, session_id)
            return None
        *facts, namespace, name, ended = row
        no, life, version, last_seq, head, cleared, floor, kept, messages, size, dimension, ttl, expires_at = facts
        refuse_other_row((namespace, name, ended), (db.namespace, session_id, 0))
        refuse_bad_numbers(no, version, last_seq, head, cleared, floor, messages, size)
        if expires_at is not None and expires_at <= now:
            return None
        state = State(head, cleared, floor, () if kept is None else kept_from(kept), messages)
    except UNREADABLE as exc:
        if is_interruption(exc):
            raise
        raise unreadable_session(session_id, exc) from exc
    return SessionRow(no, life, version, last_seq, state, size, dimension, ttl, expires_at)


def refuse_other_row(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Raise ValueError if the index led to a row of another name."""
    if found != wanted:
        raise ValueError(f"the index of names leads to {found!a}")


def refuse_damaged_index(db: Connection, session_id: str) -> None:
    """Raise ValueError if a name may not have been found because the index of names is damaged.

    If a damaged key sent the search the wrong way, that key is next to where the search ended. So both neighbours are
    checked.
    """
    if db.row(SQL["wrong_neighbour"], (db.namespace, session_id)) is not None:
        raise ValueError("its name is not in the index of names, which is damaged where it would stand")


def refuse_bad_numbers(*values: object) -> None:
    """Raise ValueError unless all of these are whole numbers of at least 0."""
    for value in values:
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!a} where a number should be")


def state_from(columns: Sequence[Any]) -> State:
    """Decode a state from its five columns head, cleared, floor, kept, messages."""
    head, cleared, floor, kept, messages = columns
    refuse_bad_numbers(head, cleared, floor, messages)
    return State(head, cleared, floor, kept_from(kept), messages)


def columns_of(state: State) -> tuple[int, int, int, str | None, int]:
    """Encode a state as its five columns: the inverse of `state_from`."""
    kept = msgspec.json.encode(state.kept).decode() if state.kept else None
    return state.head, state.cleared, state.floor, kept, state.messages


def kept_from(kept: str | None) -> tuple[int, ...]:
    return () if kept is None else tuple(msgspec.json.decode(kept))


def snapshot_state(db: Connection, no: int, snapshot_id: str) -> State | None:
    """Load the state of a snapshot of this life; None if it has no such snapshot."""
    row = db.row(SQL["load_snapshot"], (snapshot_id, no))
    return None if row is None else state_from(row)


def version_state(db: Connection, no: int, version: int, newest: int) -> State | None:
    """Load the state after a version of this life; None if it is not known (any more).

    Raises ValueError for one that must be known, since it is among the latest.
    """
    if version == 0:
        return State()
    if version > newest:
        return None
    row = db.row(SQL["load_version"], ((no << 32) + version,))
    if row is None and version > newest - REMEMBERED and not db.row(SQL["row_of_change"], ((no << 32) + version,)):
        raise ValueError(f"its version {version} is not there")
    return None if row is None else state_from(row)


def jumps_to(db: Connection, no: int, head: int) -> list[Jump]:
    """Load every jump up to `head`, newest first, whether it is on the path to it or not."""
    return db.rows(SQL["list_jumps"], (no << 32, (no << 32) + head))


def roots(db: Connection, no: int) -> list[tuple[State, str]]:
    """Read every state the session can return to (its own, of snapshots, of undo steps), with a name for messages."""
    rows = db.execute(SQL["list_roots"], {"no": no})
    return [(state_from(columns), name) for *columns, name in rows]


def remembered_states(db: Connection, no: int) -> list[tuple[int, State]]:
    """Read the states of earlier versions that can still be read, each with the id of its change, oldest first."""
    return [(row_id, state_from(columns)) for row_id, *columns in db.execute(SQL["list_remembered"], span(no))]


class PathWalk:
    """The path to a head, walked back only as far as a caller asks for.

    A session that was edited ten thousand times has as many jumps, and few of them are on the path to its head. So each
    step seeks the next jumps on the path; where nearly every jump is on it, a step fetches more of them.
    """

    __slots__ = ("_at", "_base", "_db", "_ranges", "_step")

    def __init__(self, db: Connection, no: int, head: int) -> None:
        self._db = db
        self._base = no << 32
        self._at = head  # the end of the next range; 0: the path has been walked to its beginning
        self._step = FIRST_JUMPS
        self._ranges: list[Range] = []  # the newest first

    @property
    def walked(self) -> list[Range]:
        """The ranges walked so far, in order."""
        return self._ranges[::-1]

    def back(self) -> Iterator[Range]:
        """Yield the ranges of the path, newest first."""
        place = 0
        while place < len(self._ranges) or self._goes_on():
            yield self._ranges[place]
            place += 1

    def down_to(self, seq: int) -> list[Range]:
        """Walk down to `seq`, and return the ranges from there to the head, in order."""
        self._reach(seq)
        return self._ranges[::-1]

    def __contains__(self, seq: int) -> bool:
        self._reach(seq)
        at = bisect_left(self._ranges, -seq, key=_negative_first)  # the newest range that begins at `seq` or before
        return seq > 0 and at < len(self._ranges) and seq <= self._ranges[at][1]

    def _reach(self, seq: int) -> None:
        while (not self._ranges or self._ranges[-1][0] > seq) and self._goes_on():
            pass

    def _goes_on(self) -> bool:
        """Walk on by one statement. False: there is no range before those walked."""
        at, base, step = self._at, self._base, self._step
        if at <= 0:
            return False
        jumps = self._db.rows(_LATEST_JUMPS, (base, base + at, step))
        walked = len(self._ranges)
        for seq, after in jumps:
            if seq <= at:  # else it is a jump of another branch
                if not 0 <= after < seq:
                    raise damaged_jump(self._db.value(SQL["name_of"], (base >> 32,)), seq, after)
                self._ranges.append((seq, at))
                at = after
        if len(jumps) < step:
            if at > 0:
                self._ranges.append((1, at))
            at = 0
        self._step = min(4 * step, MOST_JUMPS) if 2 * (len(self._ranges) - walked) >= len(jumps) else FIRST_JUMPS
        self._at = at
        return len(self._ranges) > walked


def _negative_first(found: Range) -> int:
    return -found[0]
