"""Reads of one session, each inside one read transaction: every row it hands over is of one moment.

It hands rows to a `take` function, which decodes them (core/message_batches.py, core/codec.py).
visible_ranges.py finds the ranges of a read, lost_entries.py notices rows that should be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import add, gt, le, lt
from typing import Any

import msgspec

from everturn.backend import REMEMBERED, Query, Reading, Status, Take
from everturn.backends._shared.verification import unreadable_session
from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.lost_entries import KnownTurns, first_lost, first_missing, known_turns
from everturn.backends.sqlite.packed_rows import cut_rows, entries_within, repeated, seqs_of
from everturn.backends.sqlite.session_row import (
    UNREADABLE,
    PathWalk,
    kept_from,
    refuse_bad_numbers,
    refuse_damaged_index,
    refuse_other_row,
    snapshot_state,
    span,
    version_state,
)
from everturn.backends.sqlite.visible_ranges import (
    Bounds,
    VisibleRanges,
    ranges_as_json,
    start_of_latest,
    visible_ranges,
)
from everturn.core.message_batches import BATCH, Runs, Unbroken
from everturn.core.paths import Range, State, size
from everturn.core.signal_exceptions import is_interruption
from everturn.model import MESSAGE, SUMMARY, Change, SessionInfo, Snapshot

SQL = statements.load("reads.sql")
_LOAD_INFO = SQL["load_info"]


class LiveSession(msgspec.Struct, frozen=True, gc=False):
    """A live session and its present state."""

    no: int
    info: SessionInfo
    state: State

    @property
    def base(self) -> int:
        return self.no << 32


def find_session(db: Connection, session_id: str, now: float, *, count_snapshots: bool = False) -> LiveSession | None:
    """Find the live session of this name; None if there is none or it has expired.

    `count_snapshots`: else `info.snapshots` is 0, which saves a look into another table.
    """
    try:
        row = db.execute(_LOAD_INFO, (db.namespace, session_id, now, count_snapshots)).fetchone()
        if row is None:
            refuse_damaged_index(db, session_id)
            return None
        head, cleared, floor, kept, messages, namespace, ended = row[14:]
        refuse_other_row((namespace, row[1], ended), (db.namespace, session_id, 0))
        refuse_bad_numbers(row[0], row[3], *row[4:9], head, cleared, floor)
        state = State(head, cleared, floor, () if kept is None else kept_from(kept), messages)
    except UNREADABLE as exc:
        if is_interruption(exc):
            raise
        raise unreadable_session(session_id, exc) from exc
    return LiveSession(row[0], SessionInfo(*row[1:14]), state)


def read(db: Connection, query: Query, take: Take, now: float) -> Reading:
    """Hand the entries that the query names to `take`, in order, and return the session and state they are of.

    If a row is missing, `Reading.first_missing` has its seq.
    """
    found = find_session(db, query.session_id, now, count_snapshots=query.limit == 0 or query.snapshots)
    if found is None:
        return Reading(Status.NO_SESSION)
    state = found.state if query.at is None else state_at(db, found, query)
    if isinstance(state, Status):
        return Reading(state, found.info)
    snapshots = tuple(_snapshots(db, found)) if query.snapshots else ()
    if query.limit == 0:
        return Reading(Status.FOUND, found.info, state, snapshots)
    walk = PathWalk(db, found.no, state.head)
    bounds = Bounds(query.after + 1, state.head if query.before is None else min(query.before - 1, state.head))
    turns: KnownTurns | None = None
    if query.skip:
        walk.down_to(1)
        turns = known_turns(db, found.no)
        page_checksums.look_past_damage(db)  # only from here on: session and path are never read from damaged pages
    cut = False
    if query.limit is not None:
        start = start_of_latest(db, found.base, walk, bounds, state, query.limit)
        if start is not None:
            bounds, cut = Bounds(start, bounds.last), True
    visible = visible_ranges(db, found.base, walk, bounds, state, query.kind)
    path = walk.walked
    is_quick = query.kind == MESSAGE and _is_plain(state, path) and not query.skip
    is_quick = is_quick and not (cut and size(visible.must) != query.limit)
    if is_quick and _is_taken_unbroken(db, found.base, visible.must, take):
        return Reading(Status.FOUND, found.info, state, snapshots, cut=cut)
    handed, missing = _hand_over(_batches(db, found.base, visible, path, query.kind, turns), take)
    if not missing and (query.kind != MESSAGE or len(handed) != size(visible.must)):
        whole = query.after == 0 and query.before is None and query.limit is None
        must = ranges_as_json(visible.must, path)
        missing = first_missing(db, found.base, must, state.messages if whole else None) or (
            first_lost(db, found.base, must, query.kind, handed) if query.kind not in (None, MESSAGE) else 0
        )
    if not missing and cut and query.kind == MESSAGE and len(handed) != query.limit:
        missing = bounds.first  # read backwards, the log had other rows than read forwards
    return Reading(Status.FOUND, found.info, state, snapshots, missing, cut)


def state_at(db: Connection, found: LiveSession, query: Query) -> State | Status:
    """Load the state that the query asks for: now, after a version, or at a snapshot."""
    if query.at is None:
        return found.state
    if isinstance(query.at, str):
        return snapshot_state(db, found.no, query.at) or Status.NO_SNAPSHOT
    return version_state(db, found.no, query.at, found.info.version) or Status.NO_VERSION


def _snapshots(db: Connection, found: LiveSession) -> Iterator[Snapshot]:
    info = found.info
    for snapshot_id, label, version, messages, created_at in db.execute(SQL["list_snapshots"], (found.no,)):
        yield Snapshot(snapshot_id, info.session_id, info.life, label, version, messages, created_at)


def changes(db: Connection, session_id: str, limit: int, now: float) -> list[Change]:
    """List the latest changes of a session without a gap, newest first; none if there is no session."""
    found = find_session(db, session_id, now)
    if found is None:
        return []
    rows = db.rows(SQL["list_changes"], (*span(found.no), limit))
    newest = found.info.version
    told = [
        row for place, row in enumerate(rows) if row[0] == newest - place
    ]  # older ones with gaps are kept for their keys alone
    if len(told) < min(limit, newest, REMEMBERED):
        raise ValueError(f"its changes do not lead to version {newest}")
    return [
        Change(
            *(version, kind, tuple(range(first, first + count)), created_at, snapshot_id, label),
            key=None if key is None else key.hex(),
        )
        for version, kind, first, count, created_at, snapshot_id, label, key in told
    ]


# --- handing them over -----------------------------------------------------------------------------------------------


def _is_plain(state: State, path: Sequence[Range]) -> bool:
    """Whether a history is messages only, was never moved back, and hides nothing: as most do."""
    return len(path) == 1 and state.floor == 0 and state.messages == state.head


def _is_taken_unbroken(db: Connection, base: int, must: Sequence[Range], take: Take) -> bool:
    """Hand over a range of a plain history by whole rows. False: nothing was taken, as the range begins or ends inside
    a row, or one is damaged.

    Rows are in order and do not overlap. So if they hold as many messages as there are seqs, each has the next seq.
    """
    if len(must) != 1:
        return False
    ((first, last),) = must
    starts_with_a_row = first == 1 or db.row(SQL["row_at"], (base + first,)) is not None
    if not starts_with_a_row or db.value(SQL["last_row"], (base + first, base + last)) != base + last:
        return False
    unbroken = Unbroken(first, last, db.execute(SQL["rows_of_messages"], (base + first, base + last)))
    return take(unbroken) is True


def _batches(
    db: Connection, base: int, visible: VisibleRanges, path: Sequence[Range], kind: str | None, turns: KnownTurns | None
) -> Iterator[Sequence[Any]]:
    """Yield the visible entries in order, a batch at a time."""
    must = ranges_as_json(visible.must, path)
    if kind == MESSAGE:
        found: Iterable[Any] = db.execute(SQL["messages_in_ranges"], (must, base))
        for rows in _some(found if turns is None else turns.confirmed(found)):
            yield _messages(rows)
    elif kind is not None:
        if kind == SUMMARY:
            # Kept entries are messages, so that of `must` only the part above the floor has summaries.
            must = ranges_as_json(sorted([*visible.below, *visible.must]), path)
        yield from _some(entry[:4] for entry in entries_within(db.execute(SQL["others_in_ranges"], (must, base, kind))))
    else:
        entries = entries_within(db.execute(SQL["all_in_ranges"], (must, base)))
        if visible.below:
            below = ranges_as_json(visible.below, path)
            summaries = entries_within(db.rows(SQL["others_in_ranges"], (below, base, SUMMARY)))
            yield from _some(sorted([*summaries, *entries]))  # summaries below the floor lie between kept messages
        else:
            yield from _some(entries)


def _some(rows: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _messages(rows: Sequence[Any]) -> Sequence[Any]:
    """Take the messages of rows by whole rows, unless a row reaches beyond its range."""
    firsts, times, checksums, bodies, _, _, counts, _, low, high = zip(*rows, strict=True)
    if all(map(le, low, firsts)) and all(map(gt, high, map(add, map(add, firsts, counts), repeat(-2)))):
        return Runs(seqs_of(firsts, counts), repeated(times, counts), checksums, bodies, lambda: _entries(rows))
    wanted = cut_rows(rows)
    if wanted is None:
        return _entries(rows)
    firsts, times, checksums, bodies, counts = zip(*wanted, strict=True)
    return Runs(seqs_of(firsts, counts), repeated(times, counts), checksums, bodies, lambda: _entries(rows))


def _entries(rows: Iterable[Any]) -> list[Any]:
    return [entry[:4] for entry in entries_within(rows)]


def _hand_over(batches: Iterable[Sequence[Any]], take: Take) -> tuple[list[int], int]:
    """Hand batches to `take`. Returns the seqs handed over, and the first that is out of order; 0 if none is."""
    handed: list[int] = []
    reached = missing = 0
    for batch in batches:
        take(batch)
        seqs = batch.seqs if isinstance(batch, Runs) else [row[0] for row in batch]
        if not seqs:
            continue  # its rows were damaged
        if not missing and not (reached < seqs[0] and (isinstance(seqs, range) or all(map(lt, seqs, seqs[1:])))):
            missing = seqs[0]
        reached = seqs[-1]
        handed += seqs
    return handed, missing
