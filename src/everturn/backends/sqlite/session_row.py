"""The row of a session and the small rows beside it (jumps, snapshots, undo steps, changes), read and checked.

Shared by every module that changes or reads a session. path_walk.py reads jumps along a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from everturn.backends._shared.verification import unreadable_session
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.row_checksums import all_unsealed, of_row, seconds, unsealed
from everturn.core.facts import decode_facts
from everturn.core.paths import Jump, State
from everturn.core.plan_change import UndoStep
from everturn.core.requests import REMEMBERED
from everturn.core.signal_exceptions import is_interruption
from everturn.model import SessionInfo

SQL = statements.load("session_row.sql")
_LOAD = SQL["load_session"]
_UPDATE = SQL["update_session"]
T = TypeVar("T")
UNREADABLE = (ValueError, TypeError, msgspec.MsgspecError)  # raised by a row that was changed by hand


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """The row of a live session. `snapshots`, `undo_steps` and `effects` are the numbers of its rows in these tables;
    `last_jump` is a seq, or 0; `facts_text` is the JSON of its facts."""

    number: int
    session_id: str
    life: str
    version: int = 0
    last_seq: int = 0
    state: State = State()
    bytes: int = 0
    dimension: int | None = None
    ttl: float | None = None
    expires_at: float | None = None
    created_at: float = 0.0
    changed_at: float = 0.0
    forked_from: str | None = None
    snapshots: int = 0
    undo_steps: int = 0
    last_jump: int = 0
    facts_text: str | None = None
    effects: int = 0

    @property
    def facts(self) -> dict[str, str]:
        """The facts that set_facts set. Raises msgspec.MsgspecError if the text is damaged."""
        return decode_facts(self.facts_text)

    @property
    def base(self) -> int:
        """The number that is added to a seq or version to make a row's id."""
        return self.number << 32

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest id of the session's rows, in a table keyed by seq or version."""
        return span(self.number)

    def is_over(self, now: float) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(
            *(self.session_id, self.life, self.version, self.state.messages, self.last_seq, self.bytes),
            *(self.snapshots, self.undo_steps, self.created_at, self.changed_at),
            *(self.ttl, self.expires_at, self.forked_from, self.facts),
        )


def span(number: int) -> tuple[int, int]:
    return number << 32, (number << 32) + 0xFFFFFFFF


def load(db: Connection, session_id: str, now: float, bad: list[str] | None = None) -> SessionRow | None:
    """Load the live session of this name; None if there is none or it has expired.

    Raises CorruptEntry if its row, or the index of names, is not as it was written. `bad` collects what is wrong with a
    row that can be read all the same: such a row is then returned.
    """
    try:
        row = db.execute(_LOAD, (db.namespace, session_id)).fetchone()
        if row is None:
            refuse_damaged_index(db, session_id)
            return None
        if row[1:4] != (db.namespace, session_id, 0):
            refuse_other_row(row[1:4], (db.namespace, session_id, 0))
        session = from_columns(row, bad)
    except UNREADABLE as exc:
        if is_interruption(exc):
            raise
        raise unreadable_session(session_id, exc) from exc
    return None if session.expires_at is not None and session.is_over(now) and not bad else session


def from_columns(row: Sequence[Any], bad: list[str] | None = None) -> SessionRow:
    """Make a SessionRow of all columns of a row. Raises ValueError if they do not match its checksum (see `load`)."""
    try:
        columns = unsealed(row, "the row of session number")
    except ValueError as exc:
        if bad is None:
            raise
        bad.append(str(exc))
        columns = row[:-1]
        refuse_bad_numbers(*columns[5:7], columns[12], *columns[19:22], columns[23])
    number, _, session_id, _, life, version, last_seq, *rest = columns
    return SessionRow(number, session_id, life, version, last_seq, state_from(rest[:5]), *rest[5:])


def store(db: Connection, session: SessionRow, *, facts: bool = False) -> None:
    """Write the columns of a live session, with their checksum. With `facts`, write its facts, too."""
    row = session
    if facts:
        db.execute(SQL["update_facts"], (row.facts_text, row.number))
    ttl = None if row.ttl is None else seconds(row.ttl)
    expires_at = None if row.expires_at is None else seconds(row.expires_at)
    changing = (
        *(row.life, row.version, row.last_seq, *columns_of(row.state), row.bytes, row.dimension, ttl, expires_at),
        *(seconds(row.created_at), seconds(row.changed_at), row.forked_from),
        *(row.snapshots, row.undo_steps, row.last_jump),
    )
    checksum = of_row(row.number, db.namespace, row.session_id, 0, *changing, row.facts_text, row.effects)
    db.execute(_UPDATE, (*changing, row.effects, checksum, row.number))


def refuse_other_row(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Raise ValueError if the index led to a row of another name."""
    if found != wanted:
        raise ValueError(f"the index of names leads to {found!a}")


def refuse_damaged_index(db: Connection, session_id: str) -> None:
    """Raise ValueError if a name may not have been found because the index of names is damaged.

    It must not be in the second index either. And if a damaged key sent the search the wrong way, that key is next to
    where the search ended; so both neighbours are compared with their rows.
    """
    name = (db.namespace, session_id)
    if db.row(SQL["is_in_second_index"], name) is not None or db.row(SQL["wrong_neighbour"], name) is not None:
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
    return State(head, cleared, floor, () if kept is None else kept_from(kept), messages)


def columns_of(state: State) -> tuple[int, int, int, str | None, int]:
    """Encode a state as its five columns: the inverse of `state_from`."""
    kept = msgspec.json.encode(state.kept).decode() if state.kept else None
    return state.head, state.cleared, state.floor, kept, state.messages


def kept_from(kept: str) -> tuple[int, ...]:
    return tuple(msgspec.json.decode(kept))


# --- rows beside it --------------------------------------------------------------------------------------------------


def snapshot_state(db: Connection, session: SessionRow, snapshot_id: str) -> State | None:
    """Load the state of a snapshot of this life; None if it has no such snapshot."""
    row = db.row(SQL["load_snapshot"], (snapshot_id,))
    if row is None:  # all snapshots of the session are there, and this is none of them: it is absent
        if any(other[0] == snapshot_id for other in snapshots(db, session)):
            raise ValueError(f"snapshot {snapshot_id!a} is not found by its id")
        return None
    found_id, number, _, _, *state, _ = unsealed(row, "snapshot")
    if found_id != snapshot_id:  # where keys are out of order, SQLite takes a lesser one for an equal one
        raise ValueError(f"a search for snapshot {snapshot_id!a} leads to {found_id!a}")
    return state_from(state) if number == session.number else None


def snapshots(db: Connection, session: SessionRow, bad: list[str] | None = None) -> list[Sequence[Any]]:
    """Read the snapshots of a session in the order they were taken: all columns of each.

    `bad`, here and below, collects the damage, and damaged rows are left out. Without it, damage raises ValueError.
    """
    rows = all_unsealed(db.execute(SQL["list_snapshots"], (session.number,)), "snapshot", bad)
    found = [row for row in rows if row[1] == session.number]
    versions = [row[3] for row in found]
    if versions != sorted(versions) and bad is None:
        raise ValueError("its snapshots are not in order")
    return all_of(found, session.snapshots, "snapshots", bad)


def undo_steps(db: Connection, session: SessionRow, bad: list[str] | None = None) -> list[UndoStep]:
    """Read the undo steps of a session, oldest first."""
    if not session.undo_steps and bad is None:
        return []
    rows = _own(db.execute(SQL["list_undo_steps"], session.span), session, "the undo step", bad)
    steps = [
        UndoStep(session.base + version, kind, moved_to, hidden, state_from(columns))
        for version, kind, moved_to, hidden, *columns in rows
    ]
    return all_of(steps, session.undo_steps, "undo steps", bad)


def all_jumps(db: Connection, session: SessionRow, bad: list[str] | None = None) -> list[Jump]:
    """Read every jump of a session, newest first, whether it is on the path to its head or not."""
    if not session.last_jump and bad is None:
        return []
    found: list[Jump] = []
    following = session.last_jump
    for seq, after, prior in _own(db.execute(SQL["list_jumps"], session.span), session, "the jump", bad):
        if seq != following:
            break
        found.append((seq, after))
        following = prior
    return all_of(found, len(found) + bool(following), "jumps", bad)


def _own(rows: Iterable[Sequence[Any]], session: SessionRow, called: str, bad: list[str] | None) -> Iterator[Any]:
    """Yield rows without their checksums, their seq or version in place of their id."""
    for row_id, *columns in all_unsealed(rows, called, bad):
        if row_id >> 32 == session.number:
            yield row_id - session.base, *columns


def all_of(found: list[T], count: int, called: str, bad: list[str] | None) -> list[T]:
    """Return what was found. There must be as many as the session's row counts."""
    if len(found) != count:
        what = f"it has {len(found)} {called} that can be read, and should have {count}"
        if bad is None:
            raise ValueError(what)
        bad.append(what)
    return found


def change_columns(row: Sequence[Any], base: int) -> Sequence[Any]:
    """Return all columns of a change, its version in place of its id.

    Raises ValueError if they do not match its checksum, or if it is a change of another session.
    """
    row_id, *columns = unsealed(row, "the change")
    if not base <= row_id <= base + 0xFFFFFFFF:
        raise ValueError(f"the change {row_id} is where one of its own should be")
    return row_id - base, *columns


def version_state(db: Connection, session: SessionRow, version: int) -> State | None:
    """Load the state after a version of this life (0: before the first); None if it is not known (any more).

    Raises ValueError if it must be known, since it is among the latest, and is not there.
    """
    if version == 0:
        return State()
    if version > session.version:
        return None
    row = db.row(SQL["load_version"], (session.base + version,))
    if row is None:
        if version > session.version - REMEMBERED:
            raise ValueError(f"its version {version} is not there")
        return None
    columns = change_columns(row, session.base)[10:15]
    return None if columns[0] is None else state_from(columns)


def roots(db: Connection, session: SessionRow, bad: list[str] | None = None) -> list[tuple[State, str]]:
    """Read every state the session can return to (its own, of snapshots, of undo steps), with a name for messages."""
    return [
        (session.state, "the head"),
        *((state_from(row[4:9]), f"snapshot {row[0]}") for row in snapshots(db, session, bad)),
        *((step.before, f"the undo step of version {step.id & 0xFFFFFFFF}") for step in undo_steps(db, session, bad)),
    ]


def remembered_states(db: Connection, session: SessionRow, bad: list[str] | None = None) -> Iterator[tuple[int, State]]:
    """Read the states of earlier versions that can still be read, each with the id of its change, oldest first."""
    for row in _own(db.execute(SQL["list_changes"], session.span), session, "the change", bad):
        if row[10] is not None:
            yield session.base + row[0], state_from(row[10:15])
