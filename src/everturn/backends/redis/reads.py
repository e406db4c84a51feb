"""Reads of one session: its facts and state by one script, its entries by plain XRANGE.

Entries never change, so those of a state can be fetched after it, page by page. What is missing then was reclaimed
since, or is lost: a second look tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse
from typing import Any

import msgspec

from everturn.backend import Query, Reading, Status, Take
from everturn.backends.redis.looks import NEVER, Seen, look
from everturn.backends.redis.names import Keys
from everturn.backends.redis.records import StoredChange, change_of, entry_row, message_columns, seq_of, seqs_of
from everturn.backends.redis.sending import Sender
from everturn.backends.redis.wire import Command
from everturn.codec import EntryRow, checksum
from everturn.model import MESSAGE, SUMMARY, TOOL_CALL
from everturn.rules import Range, State, clip, contains, minus, path

BATCH = 128  # rows decoded at a time: what fits the processor's cache
PAGE = 1000  # entries in one reply
PAGES = 8  # replies in one round trip
MORE_THAN_LIMIT = 16  # a few other entries may stand among the messages asked for
_CLASSES = {SUMMARY: b"s", TOOL_CALL: b"t"}


class Log:
    """The entries of one session that have been fetched so far, by seq: their values, and the kinds of those that are
    no messages."""

    def __init__(self, sender: Sender, key: bytes, deadline: float) -> None:
        self._sender = sender
        self._key = key
        self._deadline = deadline
        self._covered: list[Range] = []
        self.values: dict[int, bytes] = {}
        self.other_kinds: dict[int, bytes] = {}

    def kind_of(self, seq: int) -> bytes:
        return self.other_kinds.get(seq, b"message")

    def newest(self, count: int, before: int | None) -> Command:
        """The command that fetches the newest entries; its reply is for `put_newest`."""
        return ("XREVRANGE", self._key, "+" if before is None else min(before, NEVER) - 1, "-", "COUNT", count)

    def put_newest(self, rows: Sequence[Any], count: int, before: int | None) -> None:
        self._put(rows)
        oldest = seq_of(rows[-1][0]) if len(rows) == count else 1
        newest = before - 1 if before is not None else seq_of(rows[0][0]) if rows else 0
        self._covered.append((oldest, newest))

    def _put(self, rows: Iterable[Any]) -> None:
        names, kinds, values = [], [], []
        for name, fields in rows:
            names.append(name)
            kinds.append(fields[0])
            values.append(fields[1])
        seqs = seqs_of(names)
        self.values.update(zip(seqs, values, strict=True))
        if kinds.count(b"message") < len(kinds):
            self.other_kinds.update({seq: kind for seq, kind in zip(seqs, kinds, strict=True) if kind != b"message"})

    async def fetch(self, ranges: Iterable[Range]) -> None:
        """Have all entries of the ranges that there are, in as many round trips as keep each to a few thousand."""
        wanted = minus(ranges, self._covered)
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


class Found(msgspec.Struct, frozen=True, gc=False):
    """What a read found: the entries are in `log`, `seqs` says which of them, in order. Of those from `first_missing`
    on, some are not there."""

    seen: Seen
    log: Log
    seqs: list[int]
    first_missing: int = 0
    cut: bool = False


async def collect(sender: Sender, keys: Keys, query: Query, now: str, deadline: float) -> Found:
    """Fetch what the query asks for. Looks again if something is missing that a later state may explain."""
    found = await _collect(sender, keys, query, now, deadline)
    while found.first_missing:
        again = await _collect(sender, keys, query, now, deadline)
        if again.seen.session == found.seen.session or not again.first_missing:
            return again
        found = again
    return found


async def _collect(sender: Sender, keys: Keys, query: Query, now: str, deadline: float) -> Found:
    log = Log(sender, keys[1], deadline)
    plain = query.kind in (None, MESSAGE) and query.limit != 0 and query.at is None
    count = PAGE if query.limit is None else min(query.limit + MORE_THAN_LIMIT, PAGE)
    seen, rest = await look(
        sender,
        keys,
        query.session_id,
        now,
        deadline,
        at=query.at,
        snapshots=query.snapshots,
        others=query.kind not in (None, MESSAGE),
        more=[log.newest(count, query.before)] if plain and query.before != 0 else [],
    )
    if seen.status is not Status.FOUND or seen.session is None or query.limit == 0:
        return Found(seen, log, [])
    if rest:
        log.put_newest(rest[0], count, query.before)
    state = seen.state
    last = state.head if query.before is None else min(query.before - 1, state.head)
    window = clip(path(state.head, seen.session.jumps), query.after + 1, last)
    cut = False
    if query.limit is not None:
        start = await _window_start(log, _must_be_there(window, state), query.limit)
        if start is not None:
            window, cut = clip(window, start, state.head), True
    shown = _shown(window, seen, query.kind)
    await log.fetch(shown)
    seqs = list(chain.from_iterable([range(first, last + 1) for first, last in shown]))
    whole = query.kind in (None, MESSAGE) and query.after == 0 and query.before is None and query.limit is None
    return Found(seen, log, seqs, _first_wrong(log, seqs, query.kind, state.messages if whole else None), cut)


def _first_wrong(log: Log, seqs: Sequence[int], kind: str | None, messages: int | None) -> int:
    """The first seq that is not there, or not as what it was written; 0 if all is well."""
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


def _must_be_there(window: Sequence[Range], state: State) -> list[Range]:
    """The seqs in the window that are visible whatever their kind: kept ones, and all above the floor."""
    above = clip(window, state.floor + 1, state.head)
    if not state.kept:
        return above
    below = clip(window, state.cleared + 1, state.floor)
    return [(seq, seq) for seq in state.kept if contains(below, seq)] + above


async def _window_start(log: Log, shown: Sequence[Range], limit: int) -> int | None:
    """The seq of the `limit`-th latest message; None if there are no more than that."""
    start = None
    count = 0
    for first, last in reversed(shown):
        for high in range(last, first - 1, -PAGE):
            low = max(first, high - PAGE + 1)
            await log.fetch([(low, high)])
            for seq in range(high, low - 1, -1):
                if seq in log.values and seq not in log.other_kinds:
                    count += 1
                    if count > limit:
                        return start
                    start = seq
    return None


def _shown(window: Sequence[Range], seen: Seen, kind: str | None) -> list[Range]:
    """Which entries to hand over, in order."""
    state = seen.state
    if kind == MESSAGE:
        return _must_be_there(window, state)
    below = clip(window, state.cleared + 1, state.floor)
    summaries = [(seq, seq) for letter, seq in seen.others if letter == b"s" and contains(below, seq)]
    if kind is None:
        must = _must_be_there(window, state)
        return sorted(summaries + must) if summaries else must
    letter = _CLASSES.get(kind, b"r")
    above = clip(window, state.floor + 1, state.head)
    shown = [(seq, seq) for found, seq in seen.others if found == letter and contains(above, seq)]
    return summaries + shown if kind == SUMMARY else shown


async def read(sender: Sender, keys: Keys, query: Query, take: Take, now: str, deadline: float) -> Reading:
    """Hand the entries that the query names to `take`, in order, and say what session and state they are of."""
    found = await collect(sender, keys, query, now, deadline)
    seen = found.seen
    if seen.session is None:
        return Reading(seen.status)
    for rows in _batches(found, query.kind):
        take(rows)
    snapshots = tuple(stored.snapshot for stored in seen.snapshots)
    return Reading(seen.status, seen.session.info, seen.state, snapshots, found.first_missing, found.cut)


def _batches(found: Found, kind: str | None) -> Iterator[Any]:
    """The entries found, of this kind or of all, a few at a time."""
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


def present(found: Found) -> list[int]:
    """The seqs of the entries that are there."""
    return [seq for seq in found.seqs if seq in found.log.values] if found.first_missing else found.seqs


def entry_rows(log: Log, seqs: Iterable[int]) -> list[EntryRow]:
    """Entries, whole."""
    return [entry_row(seq, log.kind_of(seq), log.values[seq]) for seq in seqs]


def latest_changes(keys: Keys, limit: int | None) -> Command:
    """The command that lists a session's changes, newest first."""
    return ("XREVRANGE", keys[3], "+", "-", *(() if limit is None else ("COUNT", max(1, limit))))


async def changes(sender: Sender, keys: Keys, deadline: float) -> list[StoredChange]:
    """All changes of a session that are remembered, newest first."""
    (rows,) = await sender.send(keys[3], [latest_changes(keys, None)], deadline)
    return [change_of(row) for row in rows]
