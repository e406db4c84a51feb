"""Reads of one session, each inside one read transaction: every row it hands over is of one moment.

A row is recognised by its whole id, not by the seq in it: on a damaged page, a scan may meet rows of another session.

It hands rows to a `take` function, which decodes them (core/message_batches.py, core/codec.py).
visible_ranges.py finds the ranges of a read, lost_entries.py notices rows that should be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import lt
from typing import TypeVar

import msgspec

from everturn.backend import REMEMBERED, Query, Reading, Status, Take
from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.log_rows import (
    MESSAGE_ROWS,
    TURN_ROWS,
    WHOLE_ROWS,
    EntryBatch,
    MessageBatch,
    Piece,
    latest,
    pieces,
)
from everturn.backends.sqlite.lost_entries import first_lost, first_missing, in_order
from everturn.backends.sqlite.packed_rows import entries_within
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.backends.sqlite.row_checksums import all_unsealed
from everturn.backends.sqlite.session_row import (
    SessionRow,
    load,
    snapshot_state,
    snapshots,
    version_state,
)
from everturn.backends.sqlite.visible_ranges import (
    LogView,
    VisibleRanges,
    front_ranges,
    latest_summaries,
    ranges_as_json,
    summaries_below,
    visible_ranges,
)
from everturn.core.codec import EntryRow
from everturn.core.message_batches import BATCH
from everturn.core.paths import Range, State, size
from everturn.model import MESSAGE, SUMMARY, Change, Snapshot

T = TypeVar("T")
SQL = statements.load("reads.sql")


def read(db: Connection, query: Query, take: Take, now: float) -> Reading:
    """Hand the entries that the query names to `take`, in order, and return the session and state they are of.

    If a row is missing, `Reading.first_missing` has its seq.
    """
    found = load(db, query.session_id, now)
    if found is None:
        return Reading(Status.NO_SESSION)
    state = found.state if query.at is None else state_at(db, found, query)
    if isinstance(state, Status):
        return Reading(state, found.info)
    taken = tuple(_snapshots(db, found)) if query.snapshots else ()
    if query.limit == 0:
        return Reading(Status.FOUND, found.info, state, taken)
    last = state.head if query.before is None else min(query.before - 1, state.head)
    view = LogView(db, found.base, PathWalk(db, found, state.head), state, query.after + 1, last)
    if query.front:
        return Reading(Status.FOUND, found.info, state, taken, *_front(view, query, take))
    if query.skip:
        missing, cut = 0, _hand_over_undamaged(view, query, take)
    elif query.kind == MESSAGE:
        missing, cut = _hand_over_messages(view, query, take)
    elif query.kind is None:
        missing, cut = _hand_over_entries(view, query, take)
    else:
        missing, cut = _hand_over_others(view, query, query.kind, take)
    return Reading(Status.FOUND, found.info, state, taken, missing, cut)


def state_at(db: Connection, found: SessionRow, query: Query) -> State | Status:
    """Load the state that the query asks for: now, after a version, or at a snapshot."""
    if query.at is None:
        return found.state
    if isinstance(query.at, str):
        return snapshot_state(db, found, query.at) or Status.NO_SNAPSHOT
    return version_state(db, found, query.at) or Status.NO_VERSION


def _snapshots(db: Connection, found: SessionRow) -> Iterator[Snapshot]:
    for snapshot_id, _, label, version, _, _, _, _, messages, created_at in snapshots(db, found):
        yield Snapshot(snapshot_id, found.session_id, found.life, label, version, messages, created_at)


def changes(db: Connection, session_id: str, limit: int, now: float) -> list[Change]:
    """List the latest changes of a session without a gap, newest first; none if there is no session."""
    found = load(db, session_id, now)
    if found is None:
        return []
    rows = all_unsealed(db.execute(SQL["list_changes"], (*found.span, limit)), "the change")
    newest = found.base + found.version
    # Older changes, with gaps between them, are kept for their keys alone.
    told = [row for place, row in enumerate(rows) if row[0] == newest - place]
    if len(told) < min(limit, found.version, REMEMBERED):
        raise ValueError(f"its changes do not lead to version {found.version}")
    return [
        Change(
            *(row_id - found.base, kind, tuple(range(first, first + count)), created_at, snapshot_id, label),
            key=None if key is None else key.hex(),
        )
        for row_id, kind, _, key, _, first, count, snapshot_id, label, created_at, *_ in told
    ]


# --- handing them over -----------------------------------------------------------------------------------------------


def _hand_over_messages(view: LogView, query: Query, take: Take) -> tuple[int, bool]:
    """Hand the visible messages to `take`. Returns the first seq that is missing (0: none is), and whether the limit
    left out earlier messages; as the two below do."""
    batches: Iterable[MessageBatch]
    if query.limit is None:
        must, cut = visible_ranges(view), False
        batches = map(MessageBatch, pieces(view, must, MESSAGE_ROWS))
    else:
        found, must, cut = latest(view, query.limit, MESSAGE_ROWS, MessageBatch)
        batches = (found.pop(0) for _ in range(len(found)))  # each is freed once it has been handed over
    tally = _Tally()
    for batch in batches:
        batch.hand_over(view, take)
        tally.add(batch.seqs, batch.bad)
        del batch  # before the next is fetched: see `pieces`
    return tally.first_missing(view, must), cut


def _front(view: LogView, query: Query, take: Take) -> tuple[int, bool, list[int], tuple[EntryRow, ...]]:
    """Hand the latest messages to `take`, and before them those at the front. Returns the last fields of a Reading."""
    found, must, cut = latest(view, query.limit or 0, TURN_ROWS, MessageBatch)
    if cut:
        front = front_ranges(view, must.all[0][0])
        if front.all:
            found = [*map(MessageBatch, pieces(view, front, TURN_ROWS)), *found]
            must = must.after(front)
    tally = _Tally()
    turns: list[int] = []
    for batch in found:
        batch.hand_over(view, take)
        turns += batch.turns
        tally.add(batch.seqs, batch.bad)
    state = view.state
    summaries = latest_summaries(view) if state.cleared < state.floor else ()
    return tally.first_missing(view, must), cut, turns, summaries


def _hand_over_entries(view: LogView, query: Query, take: Take) -> tuple[int, bool]:
    """Hand the visible entries of every kind to `take`."""
    batches: Iterable[EntryBatch]
    first = view.first
    if query.limit is None:
        must, cut = visible_ranges(view), False
        batches = map(EntryBatch, pieces(view, must, WHOLE_ROWS))
    else:
        batches, must, cut = latest(view, query.limit, WHOLE_ROWS, EntryBatch)
        first = must.all[0][0] if cut else first
    entries: Iterable[EntryRow] = chain.from_iterable(batch.entries for batch in batches)
    below = {entry[0]: entry for entry in _others(view, summaries_below(view, first), SUMMARY)}
    if below:  # they lie between messages that a trim kept
        entries = sorted([*below.values(), *entries])
    tally = _Tally()
    for some in _some(entries):
        take(some)
        tally.add([entry[0] for entry in some if entry[0] not in below])
    return tally.first_missing(view, must), cut


def _hand_over_others(view: LogView, query: Query, kind: str, take: Take) -> tuple[int, bool]:
    """Hand the visible entries of one kind other than messages to `take`. The index of kinds leads to them."""
    cut = False
    if query.limit is not None:
        _, latest_ranges, cut = latest(view, query.limit, MESSAGE_ROWS, MessageBatch)
        view = msgspec.structs.replace(view, first=latest_ranges.all[0][0]) if cut else view
    must = visible_ranges(view)
    below = summaries_below(view, view.first) if kind == SUMMARY else []
    handed: list[int] = []
    tally = _Tally()
    for some in _some(entry[:4] for entry in _others(view, sorted([*below, *must.path]), kind)):
        take(some)
        handed += (row[0] for row in some)
        tally.add(handed[-len(some) :])
    stored = ranges_as_json(must.all, view.walk.walked)
    whole = query.after == 0 and query.before is None and query.limit is None
    missing = tally.unordered or first_missing(view.db, view.base, stored, view.state.messages if whole else None)
    return missing or first_lost(view.db, view.base, stored, kind, handed), cut


def _hand_over_undamaged(view: LogView, query: Query, take: Take) -> bool:
    """Hand the messages to `take` that lie where they should. Returns whether the limit left out earlier messages."""
    view.walk.down_to(1)
    page_checksums.look_past_damage(view.db)  # only from here on: session and path are never read from damaged pages

    def ordered(some: Sequence[Piece]) -> EntryBatch:
        return EntryBatch([(stretch, [*in_order(rows)]) for stretch, rows in some])

    cut = False
    batches: Iterable[EntryBatch]
    if query.limit is None:
        batches = map(ordered, pieces(view, visible_ranges(view), WHOLE_ROWS))
    else:
        batches, _, cut = latest(view, query.limit, WHOLE_ROWS, ordered)
    for batch in batches:
        if messages := [entry[:4] for entry in batch.entries if entry[4] == MESSAGE]:
            take(messages)
    return cut


def _others(view: LogView, ranges: Sequence[Range], kind: str) -> Iterator[EntryRow]:
    """Yield the entries of a kind other than messages in ranges, by the index of kinds."""
    if not ranges:
        return iter(())
    found = ranges_as_json(ranges, view.walk.walked)
    return entries_within(view.db.execute(SQL["others_in_ranges"], (found, view.base, kind)))


def _some(rows: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        yield batch


class _Tally:
    """Count of the entries that were found, to tell whether one is missing."""

    __slots__ = ("_count", "_reached", "unordered")

    def __init__(self) -> None:
        self._count = self._reached = 0
        self.unordered = 0  # the first seq that is out of order, or bad

    def add(self, seqs: Sequence[int], bad: int = 0) -> None:
        """Count these entries. `bad`: the seq of one that is damaged, and would not be handed over."""
        if not seqs:
            return
        is_rising = self._reached < seqs[0] and (isinstance(seqs, range) or all(map(lt, seqs, seqs[1:])))
        self.unordered = self.unordered or bad or (0 if is_rising else seqs[0])
        self._reached = seqs[-1]
        self._count += len(seqs)

    def first_missing(self, view: LogView, must: VisibleRanges) -> int:
        """Find the first entry of the ranges that was not counted; 0 if all were."""
        if self.unordered or self._count == size(must.all):
            return self.unordered
        stored = ranges_as_json(must.all, view.walk.walked)
        return first_missing(view.db, view.base, stored, None) or must.all[-1][1]
