"""Reads of one session: the head first, then entries that it names. All that is handed over is of one moment.

The head and the latest entries come with one query. Entries never change, so that later pages are of the same moment.
An entry that should be there and is not may have been reclaimed after the head was read, or belong to a transaction
that is not to be seen whole yet: then the read begins anew (visibility.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from everturn.backend import (
    FRONT_ENTRIES,
    FRONT_SUMMARIES,
    REMEMBERED,
    EffectsReading,
    EntryRow,
    Query,
    Reading,
    State,
    Status,
    Take,
    checksum,
    contains,
    path,
    reach,
)
from everturn.backends.dynamodb.change import held_effect
from everturn.backends.dynamodb.entry_blocks import Block, block_of
from everturn.backends.dynamodb.log_reader import LogReader, clipped
from everturn.backends.dynamodb.plan_facts import hidden_summaries
from everturn.backends.dynamodb.stored_form import ENTRIES, HEAD, Head, StoredHead
from everturn.backends.dynamodb.table import Table, gone, read_head
from everturn.core.paths import Range, minus
from everturn.model import MESSAGE, SUMMARY, Change, Snapshot

NEAR = 200  # seqs: two ranges that are nearer to each other are read by one query


class TableReads:
    """Reads sessions of a table."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self.table = table
        self._clock = clock

    async def living(self, session_id: str, deadline: float) -> Head | None:
        """Read the head of a session; None if there is none, or it has expired."""
        stored = await self.table.head(session_id, deadline)
        return stored.living(self._clock()) if stored else None

    async def log_of(self, session_id: str, deadline: float) -> LogReader | None:
        """Make a reader of the session's present life; None if there is none."""
        head = await self.living(session_id, deadline)
        return None if head is None else LogReader(self.table, head, deadline)

    async def _with_latest(
        self, session_id: str, wanted: int, deadline: float
    ) -> tuple[StoredHead | None, list[Block]]:
        """Read the head, and the latest blocks of its log, newest first, in one request."""
        pk = self.table.key_of(session_id)
        async for page in self.table.pages(
            pk, ENTRIES, HEAD, deadline, newest=True, limit=1 + max(1, min(wanted, 300))
        ):
            if not page or page[0]["sk"]["S"] != HEAD:
                return None, []
            stored = read_head(session_id, page[0])
            prefix = f"{ENTRIES}{stored.head.log}/" if stored else ""
            return stored, [block_of(item) for item in page[1:] if item["sk"]["S"].startswith(prefix)]
        return None, []

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        """Hand over the entries of a state (Backend.read)."""
        blocks: list[Block] = []
        if query.limit and query.at is None and query.before is None:
            stored, blocks = await self._with_latest(query.session_id, query.limit + 1, deadline)
        else:
            stored = await self.table.stored_head(query.session_id, deadline)
        stored = stored or await self.table.look_again(query.session_id, deadline)
        head = stored.living(self._clock()) if stored else None
        if stored is None or head is None:
            return Reading(Status.NO_SESSION)
        log = LogReader(self.table, head, deadline, blocks)
        state = await state_at(log, query.at)
        if isinstance(state, Status):
            return Reading(state, head.info)
        snapshots = await self._snapshots(log) if query.snapshots else ()
        if query.limit == 0:
            return Reading(Status.FOUND, head.info, state, snapshots)
        found = _Handover(log, state, query, take)
        await found.run()
        if found.first_lost:
            await log.settle_entry(found.first_lost)
        return Reading(
            *(Status.FOUND, head.info, state, snapshots),
            *(found.first_missing, found.cut, found.turns, found.standing),
        )

    async def _snapshots(self, log: LogReader) -> tuple[Snapshot, ...]:
        head = log.head
        return tuple(
            Snapshot(
                part.id, head.session_id, head.life, part.label, part.version, part.state.messages, part.created_at
            )
            for part in await log.snapshots()
        )

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        """List the latest changes without a gap, newest first (Backend.changes)."""
        log = await self.log_of(session_id, deadline)
        if log is None or limit <= 0:
            return []
        told: list[Change] = []
        async for page in log.changes_back(min(limit, 1000)):
            for part in page:
                if part.version != log.head.version - len(told) or len(told) == limit:
                    break
                seqs = tuple(range(part.first_seq, part.first_seq + part.count)) if part.count else ()
                key = part.key.hex() if part.key else None
                told.append(Change(part.version, part.kind, seqs, part.created_at, part.snapshot_id, part.label, key))
            else:
                continue
            break
        if len(told) < min(limit, log.head.version, REMEMBERED):
            if await log.change(log.head.version - len(told)) is not None:
                raise gone(self.table.client.name)
            raise ValueError(f"its changes do not lead to version {log.head.version}")
        return told

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        """List the effects of a session (Backend.effects), as of one moment: no effect changed while they were read."""
        while True:
            stored = await self.table.head(session_id, deadline)
            now = self._clock()
            head = stored.living(now) if stored else None
            if stored is None or head is None:
                return EffectsReading()
            rows = await LogReader(self.table, head, deadline).effects()
            again = await self.table.head(session_id, deadline) if rows else stored
            if again is not None and again.head.has_marks_of(head):
                head = again.head
                return EffectsReading(head.life, head.version, tuple(held_effect(row, head, now) for row in rows))


async def state_at(log: LogReader, at: Any) -> State | Status:
    """Find the state at a snapshot or a version, or now. Returns the Status that says why there is none."""
    if at is None:
        return log.head.state
    if isinstance(at, str):
        return await log.snapshot(at) or Status.NO_SNAPSHOT
    if at == log.head.version:
        return log.head.state
    return await log.state_after(at) or Status.NO_VERSION


class _Handover:
    """Hands the entries of a state to `take`, and notices those that are not there."""

    def __init__(self, log: LogReader, state: State, query: Query, take: Take) -> None:
        self._log = log
        self._state = state
        self._query = query
        self._take = take
        self.first_missing = self.first_lost = 0  # of all that are bad or not there; of those that are not there
        self.cut = False
        self.turns: list[int] = []
        self.standing: tuple[EntryRow, ...] = ()

    async def run(self) -> None:
        query, state = self._query, self._state
        last = state.head if query.before is None else min(query.before - 1, state.head)
        jumps = await self._log.jumps()
        whole = clipped(reach([state], jumps).whole, query.after + 1, last)
        if query.limit is None:
            await self._all(whole)
            return
        rows, must = await self._latest(whole, query.limit)
        if query.front:
            front = await self._front(whole, must) if self.cut else []
            rows = front + rows
            self.standing = await self._summaries()
        elif query.kind in (None, SUMMARY):
            start = must[0][0] if self.cut and must else query.after + 1
            rows = sorted([*await self._hidden(start, last), *rows])
        self._hand_over(rows, ordered=True)
        self._notice(must, rows)

    async def _all(self, whole: Sequence[Range]) -> None:
        """Hand over all entries, a page at a time, in order."""
        query = self._query
        last = self._state.head if query.before is None else min(query.before - 1, self._state.head)
        hidden = await self._hidden(query.after + 1, last) if query.kind in (None, SUMMARY) else []
        for first, until, ranges in _spans(whole):
            found: list[EntryRow] = []
            async for page in self._log.blocks(first, until):
                rows = _within(await self._log.rows(page, first, until), ranges)
                if rows:
                    early = [row for row in hidden if row[0] < rows[-1][0]]
                    hidden = hidden[len(early) :]
                    self._hand_over(sorted([*early, *rows]) if early else rows)
                    found += rows
            self._notice(ranges, found)
        self._hand_over(hidden)

    async def _latest(self, whole: Sequence[Range], limit: int) -> tuple[list[EntryRow], list[Range]]:
        """Read back until there are enough messages. Returns the entries from the first of these on, and the ranges
        that they should fill."""
        rows: list[EntryRow] = []
        count = 0
        for first, until, ranges in reversed(_spans(whole)):
            async for page in self._log.blocks_back(first, until, limit + 1):
                some = _within(await self._log.rows(reversed(page), first, until), ranges)
                rows = some + rows
                count += sum(row[4] == MESSAGE for row in some)
                if count > limit:
                    break
            if count > limit:
                break
        if count <= limit:
            return rows, list(whole)
        self.cut = True
        messages = [index for index, row in enumerate(rows) if row[4] == MESSAGE]
        rows = rows[messages[-limit] :]
        return rows, clipped(whole, rows[0][0], self._state.head)

    async def _front(self, whole: Sequence[Range], must: Sequence[Range]) -> list[EntryRow]:
        """Read what stands before the latest messages: those that a trim kept, and the first behind the floor."""
        start = must[0][0] if must else 0
        seqs: list[int] = []
        for first, last in whole:
            seqs += range(first, min(last, start - 1, first + len(self._state.kept) + FRONT_ENTRIES) + 1)
        wanted = seqs[: len(self._state.kept) + FRONT_ENTRIES]
        rows = await self._log.entries(wanted)
        self._notice([(seq, seq) for seq in wanted], rows)
        return rows

    async def _summaries(self) -> tuple[EntryRow, ...]:
        """Read the latest summaries, which may stand for what a trim or fold hides, wherever on the path they are."""
        state = self._state
        if state.cleared >= state.floor:
            return ()
        ranges = path(state.head, await self._log.jumps())
        on_path: list[int] = []  # newest first: a session may have been folded thousands of times
        async for seqs in self._log.summaries_back(state.cleared + 1, state.head, 2 * FRONT_SUMMARIES):
            on_path += (seq for seq in seqs if contains(ranges, seq))
            if len(on_path) >= FRONT_SUMMARIES:
                break
        rows = await self._log.entries(on_path[:FRONT_SUMMARIES])
        return tuple([row for row in rows if row[4] == SUMMARY])

    async def _hidden(self, first: int, last: int) -> list[EntryRow]:
        """Read the summaries in the part that a trim or fold hides."""
        if self._state.cleared >= self._state.floor:
            return []
        seqs = [seq for seq in await hidden_summaries(self._log, self._state) if first <= seq <= last]
        return [row for row in await self._log.entries(seqs) if row[4] == SUMMARY]

    def _hand_over(self, rows: Sequence[EntryRow], *, ordered: bool = False) -> None:
        kind = self._query.kind
        wanted = [row for row in rows if kind in (None, row[4])]
        if ordered and self._query.front:
            self.turns = [row[5] for row in wanted]
        if wanted:
            self._take(wanted if kind is None else [row[:4] for row in wanted])

    def _notice(self, ranges: Sequence[Range], rows: Sequence[EntryRow]) -> None:
        """Note the first entry that should be there and is not, or is damaged and was not handed over."""
        kind = self._query.kind
        bad = [row[0] for row in rows if kind not in (None, row[4]) and checksum(row[4], row[3]) != row[2]]
        there = _ranges_of([row[0] for row in rows])
        lost = minus(ranges, there)
        if lost and (not self.first_lost or lost[0][0] < self.first_lost):
            self.first_lost = lost[0][0]
        first = min([*bad[:1], *(low for low, _ in lost[:1])], default=0)
        if first and (not self.first_missing or first < self.first_missing):
            self.first_missing = first


def _within(rows: list[EntryRow], ranges: Sequence[Range]) -> list[EntryRow]:
    """Keep the entries that are in one of the ranges. Both are in order."""
    if len(ranges) == 1:
        return rows
    starts = [first for first, _ in ranges]
    return [row for row in rows if (at := bisect_right(starts, row[0]) - 1) >= 0 and row[0] <= ranges[at][1]]


def _ranges_of(seqs: Sequence[int]) -> list[Range]:
    """Join seqs, given in order, to ranges."""
    ranges: list[Range] = []
    for seq in seqs:
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


def _spans(ranges: Sequence[Range]) -> list[tuple[int, int, list[Range]]]:
    """Group ranges that are near each other, so that a group is read by one query: first, last, the ranges."""
    spans: list[tuple[int, int, list[Range]]] = []
    for first, last in ranges:
        if spans and first - spans[-1][1] <= NEAR:
            low, _, group = spans[-1]
            group.append((first, last))
            spans[-1] = (low, last, group)
        else:
            spans.append((first, last, [(first, last)]))
    return spans
