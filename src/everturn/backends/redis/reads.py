"""Reads of one session. One script gives its state, its ranges and a few entries (session_state.py); XRANGE gives many.

Entries never change, so they can be fetched after the state that names them, page by page. One that is missing then
was reclaimed since, or is lost: reading the session a second time tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse
from typing import Any

import msgspec

from everturn.backend import Query, Reading, Status, Take
from everturn.backends.redis.client import Sender
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.session_state import NEVER, EntriesToCome, PathWindow, SessionView, read_view, walk
from everturn.backends.redis.stored_form import (
    StoredChange,
    change_of,
    entry_row,
    message_columns,
    seq_of,
    seqs_of,
    turns_of,
)
from everturn.backends.redis.transport.resp import Command
from everturn.core.codec import EntryRow, checksum
from everturn.core.paths import Range, minus
from everturn.model import MESSAGE, SUMMARY, TOOL_CALL, Change

BATCH = 128  # rows decoded at a time: they fit into the processor's cache
PAGE = 1000  # entries in one reply
PAGES = 8  # replies in one round trip
NEAR = 4  # entries between two ranges that are read along: a second command takes the server longer
SPARE = 16  # entries fetched beside those of a limit: some of the newest are no messages
FEW = 128  # messages that come with the state; more of them are fetched by XRANGE, which is cheaper for each
_CLASSES = {SUMMARY: "s", TOOL_CALL: "t"}


class FetchedEntries:
    """The entries of one life of a session that were fetched so far, by seq: their values, and the kinds of those that
    are no messages. Entries of another life count as missing."""

    def __init__(self, sender: Sender, key: bytes, deadline: float, life: str = "") -> None:
        self._sender = sender
        self._key = key
        self._deadline = deadline
        self._covered: list[Range] = []
        self.life = life
        self.values: dict[int, bytes] = {}
        self.other_kinds: dict[int, bytes] = {}

    def kind_of(self, seq: int) -> bytes:
        return self.other_kinds.get(seq, b"message")

    def newest(self, count: int, before: int | None) -> Command:
        """Return the command that fetches the newest entries; `put_newest` takes its reply."""
        return ("XREVRANGE", self._key, "+" if before is None else min(before, NEVER) - 1, "-", "COUNT", count)

    def put_newest(self, rows: Sequence[Any], count: int, before: int | None) -> None:
        self._put(rows)
        oldest = seq_of(rows[-1][0]) if len(rows) == count else 1
        newest = before - 1 if before is not None else seq_of(rows[0][0]) if rows else 0
        self._covered.append((oldest, newest))

    def put_window(self, view: SessionView, window: PathWindow, came: EntriesToCome) -> None:
        """Take the entries that came along with the window."""
        start = view.window.start
        ranges = [part for part in view.window.ranges if part[1] < start] if came == "f" else view.window.ranges
        seqs = list(chain.from_iterable([range(first, last + 1) for first, last in ranges]))
        values = view.entries if window.bare else view.entries[1::2]
        self.values.update(zip(seqs, values, strict=True))
        if not window.bare:
            owner, message = f" {self.life}".encode(), f"message {self.life}".encode()
            for seq, kind in zip(seqs, view.entries[::2], strict=True):
                if not kind.endswith(owner):
                    del self.values[seq]
                elif kind != message:
                    self.other_kinds[seq] = kind[: -len(owner)]
        self._covered += ranges

    def _put(self, rows: Sequence[Any]) -> None:
        seqs = seqs_of([name for name, _ in rows])
        kinds, values = [fields[0] for _, fields in rows], [fields[1] for _, fields in rows]
        owner = f" {self.life}".encode()
        if kinds.count(b"message" + owner) == len(kinds):
            self.values.update(zip(seqs, values, strict=True))
            return
        for seq, kind, value in zip(seqs, kinds, values, strict=True):
            if kind.endswith(owner):
                self.values[seq] = value
                if kind != b"message" + owner:
                    self.other_kinds[seq] = kind[: -len(owner)]

    async def fetch(self, ranges: Iterable[Range]) -> None:
        """Fetch all entries of the ranges that are not here yet: a few thousand in a round trip."""
        wanted = minus(_joined(ranges), self._covered)
        commands: list[Command] = []
        size = 0
        for first, last in wanted:
            for low in range(first, last + 1, PAGE):
                high = min(low + PAGE - 1, last)
                commands.append(("XRANGE", self._key, low, high))
                size += high - low + 1
                if size >= PAGE * PAGES:
                    await self._trip(commands)
                    commands, size = [], 0
        if commands:
            await self._trip(commands)
        self._covered += wanted

    async def _trip(self, commands: Sequence[Command]) -> None:
        for rows in await self._sender.send(self._key, commands, self._deadline):
            self._put(rows)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that are close to each other."""
    joined: list[Range] = []
    for first, last in ranges:
        if joined and first - joined[-1][1] <= NEAR + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


class FoundEntries(msgspec.Struct, frozen=True, gc=False):
    """The result of a read: `seqs` are the entries asked for, in order; `log` holds them. If `first_missing` is not 0,
    an entry with that seq should be there and is not. `cut`: a limit left out older messages."""

    view: SessionView
    log: FetchedEntries
    seqs: list[int]
    first_missing: int = 0
    cut: bool = False


async def collect(sender: Sender, keys: Keys, query: Query, now: str, deadline: float) -> FoundEntries:
    """Fetch the entries of a query. If one is missing, read again: a later state may explain it."""
    found = await _collect(sender, keys, query, now, deadline)
    while found.first_missing:
        again = await _collect(sender, keys, query, now, deadline)
        if again.view.session == found.view.session or not again.first_missing:
            return again
        found = again
    return found


async def _collect(sender: Sender, keys: Keys, query: Query, now: str, deadline: float) -> FoundEntries:
    log = FetchedEntries(sender, keys[1], deadline)
    limit, listed = query.limit, query.kind in (None, MESSAGE)
    few = listed and limit is not None and 0 < limit <= FEW
    beside = listed and limit != 0 and not few and query.at is None and query.before != 0
    count = PAGE if limit is None else min(limit + SPARE, PAGE)
    last = None if query.before is None else max(query.before - 1, 0)
    came: EntriesToCome = "1" if few else "f" if query.front and beside else ""
    window = PathWindow(last, query.after + 1, limit, bare=limit is not None and query.kind == MESSAGE)
    view, rest = await read_view(
        sender,
        keys,
        query.session_id,
        now,
        deadline,
        at=query.at,
        snapshots=query.snapshots,
        others="" if limit == 0 or query.front else _others_for(query.kind),
        window=window,
        ranges=limit != 0 and (listed or limit is not None),
        entries=came,
        front=query.front,
        more=[log.newest(count, query.before)] if beside else (),
    )
    if view.status is not Status.FOUND or view.session is None or limit == 0:
        return FoundEntries(view, log, [])
    log.life = view.session.info.life
    if view.entries:
        log.put_window(view, window, came)
    if beside:
        log.put_newest(rest[0], count, query.before)
    if view.window.rest:
        view = await walk(sender, keys, view, window, deadline)
    shown = view.window.ranges if query.front else shown_in(view, query)
    if not (few and view.entries) or shown is not view.window.ranges:
        await log.fetch(shown)
    seqs = list(chain.from_iterable([range(first, last + 1) for first, last in shown]))
    whole = listed and query.after == 0 and query.before is None and limit is None
    wrong = _first_wrong(log, seqs, query.kind, view.state.messages if whole else None)
    if not wrong and window.bare and log.other_kinds:
        wrong = next((seq for seq in seqs if seq in log.other_kinds), 0)
    return FoundEntries(view, log, seqs, wrong, view.window.cut)


def _others_for(kind: str | None) -> str:
    """Name the others to ask session_state.lua for. For all kinds that is summaries: the rest is in the ranges."""
    return "b" if kind is None else "" if kind == MESSAGE else _CLASSES.get(kind, "r")


def _first_wrong(log: FetchedEntries, seqs: Sequence[int], kind: str | None, messages: int | None) -> int:
    """Return the first seq that is missing or of another kind than it was written; 0 if all is well."""
    missing = next(filterfalse(log.values.__contains__, seqs), 0)
    if missing:
        return missing
    if kind in _CLASSES:
        return next((seq for seq in seqs if log.kind_of(seq).decode(errors="replace") != kind), 0)
    others = [seq for seq in seqs if seq in log.other_kinds] if log.other_kinds else []
    for seq in others:
        if not _is_sound(seq, log.kind_of(seq), log.values[seq]):
            return seq
    return (seqs[-1] if seqs else 1) if messages not in (None, len(seqs) - len(others)) else 0


def _is_sound(seq: int, kind: bytes, value: bytes) -> bool:
    row = entry_row(seq, kind, value)
    return checksum(row[4], row[3]) == row[2]


def shown_in(view: SessionView, query: Query) -> Sequence[Range]:
    """Return the ranges to hand over, in order."""
    found = view.window
    low = found.start if found.cut else query.after + 1
    others = [(seq, seq) for seq in view.others if seq >= low]
    if query.kind not in (None, MESSAGE):
        return others
    return sorted([*others, *found.ranges]) if others else found.ranges


async def read(sender: Sender, keys: Keys, query: Query, take: Take, now: str, deadline: float) -> Reading:
    """Hand the entries of a query to `take`, in order. Returns the session and the state that they belong to."""
    found = await collect(sender, keys, query, now, deadline)
    view = found.view
    if view.session is None:
        return Reading(view.status)
    for rows in _batches(found, query.kind):
        take(rows)
    snapshots = tuple(stored.snapshot for stored in view.snapshots)
    reading = Reading(view.status, view.session.info, view.state, snapshots, found.first_missing, found.cut)
    return _with_front(reading, found) if query.front else reading


def _with_front(reading: Reading, found: FoundEntries) -> Reading:
    """Complete the reading of a front: with the turns of its messages, and its summaries."""
    view, log = found.view, found.log
    turns = turns_of([log.values[seq] for seq in present(found)])
    owner = f" {log.life}".encode()
    rows = [
        entry_row(seq, kind.removesuffix(owner), value)
        for seq, kind, value in zip(view.others, view.summaries[::2], view.summaries[1::2], strict=True)
    ]
    return msgspec.structs.replace(reading, turns=turns, summaries=tuple(rows))


def _batches(found: FoundEntries, kind: str | None) -> Iterator[Any]:
    """Yield the entries found, of this kind or of all, a few at a time."""
    log, seqs = found.log, present(found)
    if kind is not None and (log.other_kinds or kind != MESSAGE):
        wanted = kind.encode()
        seqs = [seq for seq in seqs if log.kind_of(seq) == wanted]
    for start in range(0, len(seqs), BATCH):
        some = seqs[start : start + BATCH]
        if kind is None:
            yield entry_rows(log, some)
        else:
            columns = message_columns(some, list(map(log.values.__getitem__, some)))
            yield columns if kind == MESSAGE else list(columns)


def present(found: FoundEntries) -> list[int]:
    """Return the seqs of the entries that are there."""
    return [seq for seq in found.seqs if seq in found.log.values] if found.first_missing else found.seqs


def entry_rows(log: FetchedEntries, seqs: Iterable[int]) -> list[EntryRow]:
    """Decode entries of all kinds."""
    return [entry_row(seq, log.kind_of(seq), log.values[seq]) for seq in seqs]


def list_changes(keys: Keys, limit: int | None) -> Command:
    """Return the command that lists a session's changes, newest first."""
    return ("XREVRANGE", keys[3], "+", "-", *(() if limit is None else ("COUNT", max(1, limit))))


async def latest_changes(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float, limit: int
) -> list[Change]:
    """Return the latest changes of a session, newest first."""
    view, (rows,) = await read_view(sender, keys, session_id, now, deadline, more=[list_changes(keys, limit)])
    if view.session is None or not limit:
        return []
    return [change_of(row, view.session.info.life).change for row in rows]


async def all_changes(sender: Sender, keys: Keys, life: str, deadline: float) -> list[StoredChange]:
    """Return every change that a session remembers, newest first."""
    (rows,) = await sender.send(keys[3], [list_changes(keys, None)], deadline)
    return [change_of(row, life) for row in rows]
