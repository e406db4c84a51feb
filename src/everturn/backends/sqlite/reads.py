"""Reads of one session, each inside one read transaction: all it hands over is of one moment.

It hands over rows; decoding them is core/codec.py's business, by way of the `take` it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import add, gt, le, lt
from typing import Any

import apsw
import msgspec

from everturn.backend import REMEMBERED, Query, Reading, Status, Take
from everturn.backends._shared.verification import unreadable_session
from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.packed_rows import cut_to_size, each, look_from, seqs_of, within
from everturn.backends.sqlite.session_row import (
    UNREADABLE,
    Trail,
    refuse_another,
    refuse_lost,
    refuse_no_numbers,
    snapshot_state,
    span,
    state_from,
    unpack,
)
from everturn.core.codec import checksum
from everturn.core.message_batches import BATCH, Runs, Unbroken
from everturn.core.paths import Range, State, clip, minus, size
from everturn.core.signal_exceptions import is_interruption
from everturn.model import MESSAGE, SUMMARY, Change, SessionInfo, Snapshot

SQL = statements.load("reads.sql")
_LOAD_INFO = SQL["load_info"]


class Found(msgspec.Struct, frozen=True, gc=False):
    """A live session, and the state it is in."""

    no: int
    info: SessionInfo
    state: State

    @property
    def base(self) -> int:
        return self.no << 32


def find_session(db: Connection, session_id: str, now: float, *, count_snapshots: bool = False) -> Found | None:
    """The live session of this name; None if there is none or it has expired. See Reading for its snapshots."""
    try:
        row = db.execute(_LOAD_INFO, (db.namespace, session_id, now, count_snapshots)).fetchone()
        if row is None:
            refuse_lost(db, session_id)
            return None
        head, cleared, floor, kept, messages, namespace, ended = row[14:]
        refuse_another((namespace, row[1], ended), (db.namespace, session_id, 0))
        refuse_no_numbers(row[0], row[3], *row[4:9], head, cleared, floor)
        state = State(head, cleared, floor, () if kept is None else unpack(kept), messages)
    except UNREADABLE as exc:
        if is_interruption(exc):
            raise
        raise unreadable_session(session_id, exc) from exc
    return Found(row[0], SessionInfo(*row[1:14]), state)


def read(db: Connection, query: Query, take: Take, now: float) -> Reading:
    """Hand the entries that the query names to `take`, in order, and say what session and state they are of."""
    found = find_session(db, query.session_id, now, count_snapshots=query.limit == 0 or query.snapshots)
    if found is None:
        return Reading(Status.NO_SESSION)
    state = found.state if query.at is None else state_at(db, found, query)
    if isinstance(state, Status):
        return Reading(state, found.info)
    snapshots = tuple(_snapshots(db, found)) if query.snapshots else ()
    if query.limit == 0:
        return Reading(Status.FOUND, found.info, state, snapshots)
    trail = Trail(db, found.no, state.head)
    window = Window(query.after + 1, state.head if query.before is None else min(query.before - 1, state.head))
    turns: Turns | None = None
    if query.skip:
        trail.down_to(1)
        turns = turns_of(db, found)
        page_checksums.look_past_damage(db)  # from here on: whose history it is, and its path, are never guessed
    cut = False
    if query.limit is not None:
        start = _window_start(db, found.base, trail, window, state, query.limit)
        if start is not None:
            window, cut = Window(start, window.last), True
    visible = _visible(db, found.base, trail, window, state, query.kind)
    path = trail.walked
    is_quick = query.kind == MESSAGE and _is_plain(state, path) and not query.skip
    is_quick = is_quick and not (cut and size(visible.must) != query.limit)
    if is_quick and _is_taken_unbroken(db, found.base, visible.must, take):
        return Reading(Status.FOUND, found.info, state, snapshots, cut=cut)
    handed, missing = _hand_over(_batches(db, found.base, visible, path, query.kind, turns), take)
    if not missing and (query.kind != MESSAGE or len(handed) != size(visible.must)):
        whole = query.after == 0 and query.before is None and query.limit is None
        must = looked_up(visible.must, path)
        missing = first_missing(db, found.base, must, state.messages if whole else None) or (
            _first_lost(db, found.base, must, query.kind, handed) if query.kind not in (None, MESSAGE) else 0
        )
    if not missing and cut and query.kind == MESSAGE and len(handed) != query.limit:
        missing = window.first  # read backwards, the log had other rows than forwards
    return Reading(Status.FOUND, found.info, state, snapshots, missing, cut)


def state_at(db: Connection, found: Found, query: Query) -> State | Status:
    """The state the query asks for: now, after a version, or at a snapshot."""
    if query.at is None:
        return found.state
    if isinstance(query.at, str):
        return snapshot_state(db, found.no, query.at) or Status.NO_SNAPSHOT
    if query.at == 0:
        return State()
    if query.at > found.info.version:
        return Status.NO_VERSION
    row = db.row(SQL["load_version"], (found.base + query.at,))
    if (
        row is None
        and query.at > found.info.version - REMEMBERED
        and not db.row(SQL["row_of_change"], (found.base + query.at,))
    ):
        raise ValueError(f"its version {query.at} is not there")
    return Status.NO_VERSION if row is None else state_from(row)


def _snapshots(db: Connection, found: Found) -> Iterator[Snapshot]:
    info = found.info
    for snapshot_id, label, version, messages, created_at in db.execute(SQL["list_snapshots"], (found.no,)):
        yield Snapshot(snapshot_id, info.session_id, info.life, label, version, messages, created_at)


def changes(db: Connection, session_id: str, limit: int, now: float) -> list[Change]:
    """The latest changes of a session, newest first. (Before those, only some are remembered, for their keys.)"""
    found = find_session(db, session_id, now)
    if found is None:
        return []
    rows = db.rows(SQL["list_changes"], (*span(found.no), limit))
    newest = found.info.version
    told = [row for place, row in enumerate(rows) if row[0] == newest - place]  # behind these are some with keys
    if len(told) < min(limit, newest, REMEMBERED):
        raise ValueError(f"its changes do not lead to version {newest}")
    return [
        Change(version, kind, tuple(range(first, first + count)), created_at, snapshot_id, label)
        for version, kind, first, count, created_at, snapshot_id, label in told
    ]


# --- which rows ------------------------------------------------------------------------------------------------------


class Visible(msgspec.Struct, frozen=True, gc=False):
    """What a state shows of a window: all of `must`, and the summaries in `below`, which a trim hid the rest of."""

    must: list[Range]
    below: list[Range]


class Window(msgspec.Struct, frozen=True, gc=False):
    """The part of the log that is asked for: first and last seq."""

    first: int
    last: int


def _visible(db: Connection, base: int, trail: Trail, window: Window, state: State, kind: str | None) -> Visible:
    """What the state shows of the window. The path is walked no further down than something is shown."""
    first = max(window.first, state.floor + 1)
    must = clip(trail.down_to(first), first, window.last) if first <= window.last else []
    if not state.floor:
        return Visible(must, [])
    below = _summaries_below(db, base, trail, window, state) if kind in (None, SUMMARY) else []
    return Visible(_kept(window, state) + must, below)


def _kept(window: Window, state: State) -> list[Range]:
    first = max(window.first, state.cleared + 1)
    return [(seq, seq) for seq in state.kept if first <= seq <= window.last]


def _summaries_below(db: Connection, base: int, trail: Trail, window: Window, state: State) -> list[Range]:
    """The ranges below the floor, down to the lowest in which there is a summary at all: mostly, there is none."""
    first, last = max(window.first, state.cleared + 1), min(window.last, state.floor)
    lowest = db.value(SQL["lowest_summary"], (base + first, base + last)) if first <= last else None
    return [] if lowest is None else clip(trail.down_to(lowest), lowest, last)


def _window_start(db: Connection, base: int, trail: Trail, window: Window, state: State, limit: int) -> int | None:
    """The seq of the `limit`-th latest message that is shown; None if there are no more than that."""
    seqs: list[int] = []
    lowest = max(window.first, state.floor + 1)
    for start, end in trail.back():
        first, last = max(start, lowest), min(end, window.last)
        if first <= last:
            bounds = (base + max(start, look_from(first)), base + last, limit + 1 - len(seqs))
            for seq, count in db.execute(SQL["latest_messages"], bounds):
                seqs += range(min(seq + count - 1, last), max(seq, first) - 1, -1)
                if len(seqs) > limit:
                    return seqs[limit - 1]
        if start <= lowest:
            break
    seqs += (seq for seq, _ in reversed(_kept(window, state)))
    return seqs[limit - 1] if len(seqs) > limit else None


# --- handing them over -----------------------------------------------------------------------------------------------


def _is_plain(state: State, path: Sequence[Range]) -> bool:
    """Whether a history is nothing but messages, never moved back, of which nothing is hidden: as most are."""
    return len(path) == 1 and state.floor == 0 and state.messages == state.head


def _is_taken_unbroken(db: Connection, base: int, must: Sequence[Range], take: Take) -> bool:
    """Hand over a range of a plain history by whole rows. False: it begins or ends inside one, or is damaged.

    Rows are in order and do not overlap: if they hold as many messages as there are seqs, each has the next.
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
    db: Connection, base: int, visible: Visible, path: Sequence[Range], kind: str | None, turns: Turns | None
) -> Iterator[Sequence[Any]]:
    """The entries that are visible, in order."""
    must = looked_up(visible.must, path)
    if kind == MESSAGE:
        found: Iterable[Any] = db.execute(SQL["messages_in_ranges"], (must, base))
        for rows in _some(found if turns is None else turns.confirmed(found)):
            yield _messages(rows)
    elif kind is not None:
        if kind == SUMMARY:
            # Kept entries are messages, so that of `must` only what is above the floor matters.
            must = looked_up(sorted([*visible.below, *visible.must]), path)
        yield from _some(entry[:4] for entry in within(db.execute(SQL["others_in_ranges"], (must, base, kind))))
    else:
        entries = within(db.execute(SQL["all_in_ranges"], (must, base)))
        if visible.below:
            below = looked_up(visible.below, path)
            summaries = within(db.rows(SQL["others_in_ranges"], (below, base, SUMMARY)))
            yield from _some(sorted([*summaries, *entries]))  # those below the floor stand among the kept messages
        else:
            yield from _some(entries)


def _some(rows: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _messages(rows: Sequence[Any]) -> Sequence[Any]:
    """The messages of rows: as they lie in them, unless a row holds more than is wanted of it."""
    firsts, times, checksums, bodies, _, _, counts, _, low, high = zip(*rows, strict=True)
    if all(map(le, low, firsts)) and all(map(gt, high, map(add, map(add, firsts, counts), repeat(-2)))):
        return Runs(seqs_of(firsts, counts), each(times, counts), checksums, bodies, lambda: _entries(rows))
    wanted = cut_to_size(rows)
    if wanted is None:
        return _entries(rows)
    firsts, times, checksums, bodies, counts = zip(*wanted, strict=True)
    return Runs(seqs_of(firsts, counts), each(times, counts), checksums, bodies, lambda: _entries(rows))


def _entries(rows: Iterable[Any]) -> list[Any]:
    return [entry[:4] for entry in within(rows)]


def _hand_over(batches: Iterable[Sequence[Any]], take: Take) -> tuple[list[int], int]:
    """The seqs that were handed over, and the first that does not follow those before it; 0 if all do."""
    handed: list[int] = []
    reached = missing = 0
    for batch in batches:
        take(batch)
        seqs = batch.seqs if isinstance(batch, Runs) else [row[0] for row in batch]
        if not seqs:
            continue  # of rows that are damaged
        if not missing and not (reached < seqs[0] and (isinstance(seqs, range) or all(map(lt, seqs, seqs[1:])))):
            missing = seqs[0]
        reached = seqs[-1]
        handed += seqs
    return handed, missing


def looked_up(ranges: Sequence[Range], path: Sequence[Range]) -> str:
    """The ranges for a statement: where to look from, first and last seq."""
    starts = {first for first, _ in path}  # most begin there, and a search for each would be half of a read of many
    found = [(first if first in starts else look_from(first, path), first, last) for first, last in ranges]
    return msgspec.json.encode(found).decode()


def first_missing(db: Connection, base: int, must: str, messages: int | None) -> int:
    """The first seq that is not there, or 0. An entry whose kind was damaged is not there as what it was."""
    wanted = [(first, last) for _, first, last in msgspec.json.decode(must)]
    count, found_messages = db.row(SQL["count_in_ranges"], (must, base))
    if count != size(wanted):
        there = db.rows(SQL["spans_in_ranges"], (must, base))
        return next((first for first, _ in minus(wanted, there)), wanted[-1][1])
    for seq, kind, check, body in db.execute(SQL["no_messages_in_ranges"], (must, base)):
        if checksum(kind, body) != check:
            return int(seq)
    if messages not in (None, found_messages):
        return wanted[-1][1] if wanted else 1
    return 0


def _first_lost(db: Connection, base: int, must: str, kind: str | None, handed: Iterable[int]) -> int:
    """The first entry of this kind that is in the log, and that its index did not lead to; 0 if there is none."""
    known = set(handed)
    rows = db.execute(SQL["no_messages_in_ranges"], (must, base))
    return next((seq for seq, found, *_ in rows if found == kind and seq not in known), 0)


class Turns(msgspec.Struct, frozen=True):
    """The turns that the change log tells of, by first seq: how many entries, and when. It is stored apart from them.

    The checksum of an entry is that of its text. Which seq and time it has is told by the page that it lies on, and
    where that is damaged, by this alone.
    """

    known: dict[int, tuple[int, float]]

    def confirmed(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows that stand in order, in a turn that tells the same of them, or of which nothing is told."""
        reached = 0
        for row in rows:
            seq, created_at, _, _, _, turn, count, *_ = row
            length, at = self.known.get(turn, (seq + count - turn, created_at))
            if reached < seq and turn <= seq and seq + count <= turn + length and at == created_at:
                reached = seq + count - 1
                yield row


def turns_of(db: Connection, found: Found) -> Turns:
    """As far as they can be read: damage there says nothing of the entries."""
    known: dict[int, tuple[int, float]] = {}
    try:
        for first, count, created_at in db.execute(SQL["turns"], span(found.no)):
            known[first] = count, created_at
    except apsw.Error as exc:
        if not page_checksums.is_damage(exc):
            raise
    return Turns(known)
