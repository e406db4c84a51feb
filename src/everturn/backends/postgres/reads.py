"""The rows of a read: entries for the caller, and behind them the session and state that they are of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from everturn.backend import FRONT_ENTRIES, FRONT_SUMMARIES, EntryRow, Query, Reading, Status, Take
from everturn.backends._shared.verification import unreadable_session
from everturn.backends.postgres.executor import Rows
from everturn.core.paths import State
from everturn.model import MESSAGE, SUMMARY, Change, SessionInfo, Snapshot

BATCH = 128  # rows decoded at a time: what fits the processor's cache decodes a third faster than 1,000 at once


# In JSON a float may look like an int: SessionInfo's times and TTL are read as what they are, and so is a snapshot's.
_Facts = tuple[
    str, str, int, int, int, int, int, int, float, float, float | None, float | None, str | None, dict[str, str]
]
_Snapshot = tuple[str, str | None, int, int, float]


class _About(msgspec.Struct, frozen=True, array_like=True):
    """The last row of read_v3. `size`: entries that there must be; None if the database has counted them."""

    status: str
    facts: _Facts | None = None
    state: tuple[int, int, int, tuple[int, ...], int] | None = None
    snapshots: list[_Snapshot] | None = None
    first_missing: int = 0
    size: int | None = None
    cut: bool = False


class Miscounted(Exception):
    """A read came back with another number of entries than its state shows."""


_STATUS = {status.value: status for status in Status}
_decode = msgspec.json.Decoder(_About).decode
_decode_glance = msgspec.json.Decoder(tuple[_Facts, tuple[int, int, int, tuple[int, ...] | None, int]]).decode


def parameters(query: Query, *, counts: bool = False) -> tuple[Any, ...]:
    """Give the parameters of read_v3 (or front_v3), behind the namespace and before the time.

    `counts`: the database counts the entries, and names the first that is missing.
    """
    at = query.at
    snapshot, version = (at, None) if isinstance(at, str) else (None, at)
    if query.front:
        return query.session_id, snapshot, version, query.limit, FRONT_ENTRIES, FRONT_SUMMARIES
    return (
        *(query.session_id, query.kind, snapshot, version, query.after, query.before, query.limit),
        *(query.snapshots, counts),
    )


def reading(rows: Rows, take: Take, query: Query) -> Reading:
    """Hand the entries to `take`, a batch at a time, and return their session and state. Raises CorruptEntry.

    Raises Miscounted, before anything is handed over, if there are not as many entries as there must be.
    """
    try:
        about = _decode(rows.pop()[3])
    except msgspec.MsgspecError as exc:
        raise unreadable_session(query.session_id, exc) from exc
    if about.size is not None and about.size != _count(rows, query, about):
        raise Miscounted
    turns: Sequence[int] = ()
    summaries: tuple[EntryRow, ...] = ()
    if query.front:
        rows.reverse()
        first = len(rows)
        while first > 0 and rows[first - 1][4] == SUMMARY:
            first -= 1
        summaries, rows = tuple(rows[first:]), rows[:first]
        turns, rows = [row[5] for row in rows], [row[:4] for row in rows]
    elif query.kind is None:  # behind all others come the summaries that a trim hid
        rows.sort(key=itemgetter(0))
    else:
        rows.reverse()
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        take(batch)
    if about.facts is None:
        return Reading(_STATUS[about.status])
    session = SessionInfo(*about.facts)
    return Reading(
        _STATUS[about.status],
        session,
        State() if about.state is None else State(*about.state),
        tuple(
            Snapshot(snapshot_id, session.session_id, session.life, label, version, messages, created_at)
            for snapshot_id, label, version, messages, created_at in about.snapshots or ()
        ),
        about.first_missing,
        about.cut,
        turns,
        summaries,
    )


def _count(rows: Rows, query: Query, about: _About) -> int:
    """Count the entries that a state shows, but for summaries that a trim hid."""
    if query.kind is not None or about.state is None:
        return len(rows)
    floor = about.state[2]
    return sum(row[0] > floor or row[4] == MESSAGE for row in rows)


def glance(rows: Rows, session_id: str) -> Reading:
    """Read the row of glance_v1: the facts of a session, and its state."""
    ((told,),) = rows
    if not told:
        return Reading(Status.NO_SESSION)
    try:
        facts, (head, cleared, floor, kept, messages) = _decode_glance(told)
    except msgspec.MsgspecError as exc:
        raise unreadable_session(session_id, exc) from exc
    return Reading(Status.FOUND, SessionInfo(*facts), State(head, cleared, floor, kept or (), messages))


def changes(rows: Rows) -> list[Change]:
    """Read the rows of changes_v2."""
    return [
        Change(
            *(version, kind, tuple(range(first, first + count)), created_at, snapshot_id, label),
            key=None if key is None else bytes(key).hex(),
        )
        for version, kind, first, count, created_at, snapshot_id, label, key in rows
    ]
