"""Compaction: reclaims entries that no head, snapshot or undo step can reach, old changes, and logs that ended.

First the head says which entries are needed, so that nobody returns to a version that shows others. Then blocks are
removed or rewritten, some at a time, in transactions that also correct the size in the head.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from os import urandom
from typing import Any

import msgspec

from everturn.backend import REMEMBERED
from everturn.backends.dynamodb import errors, new_state
from everturn.backends.dynamodb.entry_blocks import Block, block_item, chunk_names
from everturn.backends.dynamodb.erase import Removed, remove
from everturn.backends.dynamodb.head_queue import QueuePlace
from everturn.backends.dynamodb.listing import AT_ONCE
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.stored_form import (
    CHANGES,
    CHUNK,
    HEAD,
    NEEDED,
    SUMMARY,
    Head,
    Item,
    StoredHead,
    changes_item,
    changes_of,
    cleanup_key,
    encode,
    head_item,
    is_sound,
    names_key,
    number,
    sk_of,
    text_item,
)
from everturn.backends.dynamodb.table import Table, read_head
from everturn.core.paths import Range, Reach, contains, merge, minus, reach
from everturn.errors import CorruptEntry
from everturn.model import SUMMARY as SUMMARY_KIND
from everturn.model import Compaction
from everturn.transfer.protocol import STAGED_FOR

BLOCKS = 30  # removed or rewritten in one transaction
SHARE = 0.5  # of the time that one request takes at most


async def compact(table: Table, session_id: str, now: float, deadline: float, *, drop_undo: bool) -> Compaction:
    """Reclaim the entries and changes of a session that nothing needs (Backend.compact)."""
    until = time.monotonic() + SHARE * (deadline - time.monotonic())
    entries = size = 0
    place = QueuePlace(table, session_id, deadline)
    async with place.held():
        while True:
            stored = await table.head(session_id, deadline)
            head = stored.living(now) if stored else None
            if stored is None or head is None:
                break
            try:
                if drop_undo and head.undo:
                    stored = await _write_head(
                        table, place, stored, msgspec.structs.replace(head, undo=()), [], deadline
                    )
                    head = stored.head
                drop_undo = False  # steps that others make from now on stay
                log = LogReader(table, head, deadline)
                needed = await _needed(log)
                victims = await _victims(log, needed)
                if not victims:
                    await _forget_changes(log, deadline)
                    break
                if await log.needed() != needed:
                    stored = await _publish(table, place, stored, needed, deadline)
                log = LogReader(table, stored.head, deadline)
                gone, freed = await _reclaim(log, place, stored, victims, deadline)
                entries, size = entries + gone, size + freed
                if time.monotonic() >= until:
                    break
            except errors.ConditionNotMet as exc:
                if time.monotonic() >= until:
                    break
                await place.next_head(read_head(session_id, exc.items[0]))
    return Compaction(1 if entries else 0, entries, size)


async def _write_head(
    table: Table, place: QueuePlace, before: StoredHead, head: Head, writes: Sequence[dict[str, Any]], deadline: float
) -> StoredHead:
    """Write a head whose version stays, with other writes. Raises ConditionNotMet if it has changed, or others wait."""
    move = place.move(before)
    stored = StoredHead(urandom(12), head, move.waiting)
    item = head_item(table.key_of(head.session_id), stored)
    await table.write_together([table.move_head(item, before, move.place), *writes], deadline)
    place.written(move)
    return stored


async def _needed(log: LogReader) -> Reach:
    """Compute which entries the session can show: now, at its snapshots, or after an undo."""
    head = log.head
    states = [head.state, *(step.before for step in head.undo), *(part.state for part in await log.snapshots())]
    found = reach(states, await log.jumps())
    # Entries that are appended from now on are all there.
    return Reach(merge([*found.whole, (head.last_seq + 1, 2**53)]), found.summaries, [])


async def _publish(table: Table, place: QueuePlace, stored: StoredHead, needed: Reach, deadline: float) -> StoredHead:
    """Let the head say which entries are left. From then on nobody returns to a version that shows others."""
    head = msgspec.structs.replace(stored.head, needed=stored.head.needed + 1)
    pk = table.key_of(head.session_id)
    item = text_item(pk, f"{NEEDED}{head.log}/{number(head.needed)}", needed=encode(needed).decode())
    writes = [table.put(item)]
    if stored.head.needed:
        writes.append(table.delete(pk, f"{NEEDED}{head.log}/{number(stored.head.needed)}"))
    return await _write_head(table, place, stored, head, writes, deadline)


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A block with entries to reclaim: their indexes."""

    block: Block
    indexes: list[int]


async def _victims(log: LogReader, needed: Reach) -> list[Victim]:
    """Find blocks with entries that are not needed: as many as one transaction takes."""
    found: list[Victim] = []
    for first, last in minus([(1, log.head.last_seq)] if log.head.last_seq else [], needed.whole):
        async for page in log.blocks(first, last, bodies=False):
            for block in page:
                indexes = [*_reclaimable(block, first, last, needed.summaries)]
                if indexes:
                    found.append(Victim(block, indexes))
            if len(found) >= BLOCKS:
                return found[:BLOCKS]
    return found


def _reclaimable(block: Block, first: int, last: int, summaries: Sequence[Range]) -> list[int]:
    facts = block.facts
    indexes = range(max(0, first - facts.first), min(facts.count, last - facts.first + 1))
    return [
        index
        for index in indexes
        if facts.checksums[index] is not None
        and not (facts.kind(index) == SUMMARY_KIND and contains(summaries, facts.first + index))
    ]


async def _reclaim(
    log: LogReader, place: QueuePlace, stored: StoredHead, victims: Sequence[Victim], deadline: float
) -> tuple[int, int]:
    """Remove entries, in one transaction with the new size of the session. Returns how many, and their bytes."""
    table = log.table
    writes: list[dict[str, Any]] = []
    chunks: list[tuple[str, str]] = []
    listed: list[tuple[str, str]] = []  # pointers to summaries
    count = size = 0
    for sk, indexes in _merged(victims).items():
        block = next(victim.block for victim in victims if victim.block.sk == sk)
        facts = block.facts
        whole = [found async for page in log.blocks(facts.first, facts.first) for found in page]
        rows = {row[0]: row[3] for row in await log.rows(whole, facts.first, facts.last)}
        gone = [index for index in indexes if facts.checksums[index] is not None]
        size += sum(len(rows.get(facts.first + index, b"")) for index in gone)
        count += len(gone)
        left = [None if index in indexes else check for index, check in enumerate(facts.checksums)]
        pointers = [index for index in gone if facts.kind(index) == SUMMARY_KIND]
        listed += ((log.pk, f"{SUMMARY}{log.head.log}/{number(facts.first + index)}") for index in pointers)
        if all(check is None for check in left):
            writes.append(table.delete(log.pk, sk))
            for segment, (_, number_of) in enumerate(facts.segments):
                names = chunk_names(log.head.log, facts.owner, segment, number_of)
                chunks += ((log.pk, name) for name in names)
        else:
            bodies = None
            if not facts.segments:
                bodies = [
                    rows.get(facts.first + index, b"") if left[index] is not None else b""
                    for index in range(facts.count)
                ]
            writes.append(table.put(block_item(log.pk, sk, msgspec.structs.replace(facts, checksums=left), bodies)))
    await table.write_many(deadline, deletes=chunks)
    head = stored.head
    smaller = msgspec.structs.replace(head, size=head.size - size, summaries=head.summaries - len(listed))
    await _write_head(table, place, stored, smaller, writes, deadline)
    await table.write_many(deadline, deletes=listed)  # now that they are not counted any more
    return count, size


def _merged(victims: Sequence[Victim]) -> dict[str, set[int]]:
    """Join the indexes of a block that several ranges reach."""
    merged: dict[str, set[int]] = {}
    for victim in victims:
        merged.setdefault(victim.block.sk, set()).update(victim.indexes)
    return merged


async def _forget_changes(log: LogReader, deadline: float) -> None:
    """Remove changes older than the latest REMEMBERED, but for those with a key whose turn is stored."""
    oldest = log.head.version - REMEMBERED
    if oldest <= 0:
        return
    low, high = f"{CHANGES}{log.head.log}/", f"{CHANGES}{log.head.log}/{number(oldest)}"
    deletes: list[tuple[str, str]] = []
    puts: list[Item] = []
    left = await log.needed()
    async for page in log.table.pages(log.pk, low, high, deadline):
        for item in page:
            parts = changes_of(item)
            kept = [part for part in parts if part.version > oldest or (part.key and _is_stored(part, left))]
            if len(kept) < len(parts):
                deletes.append((log.pk, sk_of(item)))
                puts += [changes_item(log.pk, log.head.log, kept)] if kept else []
    names = {sk_of(item) for item in puts}
    await log.table.write_many(deadline, puts=puts, deletes=[key for key in deletes if key[1] not in names])


def _is_stored(part: Any, left: Reach | None) -> bool:
    return not part.count or left is None or contains(left.whole, part.first_seq + part.count - 1)


# --- logs that ended -------------------------------------------------------------------------------------------------


async def compact_ended(table: Table, now: float, deadline: float) -> Compaction:
    """Remove the logs of sessions that ended or were staged and never published, and end sessions that expired."""
    until = time.monotonic() + SHARE * (deadline - time.monotonic())
    await _end_expired(table, now, deadline, until)
    sessions = entries = size = 0
    async for page in table.pages(cleanup_key(table.namespace), None, None, deadline):
        for item in page:
            note = _note_of(item)
            if note is None or (note.is_staged and note.at + STAGED_FOR > now):
                continue
            if note.is_staged and not await _withdraw(table, note, item, now, deadline):
                continue
            try:
                removed = await (_remove_chunks if note.owner else _remove_log)(table, note, deadline, until)
            except (CorruptEntry, ValueError):
                continue  # a damaged session may need them
            if removed is not None:
                sessions, entries, size = sessions + 1, entries + removed.entries, size + removed.bytes
            if time.monotonic() >= until:
                return Compaction(sessions, entries, size)
    return Compaction(sessions, entries, size)


class Note(msgspec.Struct, frozen=True):
    """A note of a log that ended, or of rows that were staged: with `owner`, of chunks in a log that may live."""

    sk: str
    session_id: str
    log: str
    at: float
    owner: str

    @property
    def is_staged(self) -> bool:
        return self.sk.startswith(new_state.STAGED)

    @property
    def ended_sk(self) -> str:
        return new_state.ended_sk(self.session_id, self.log)


def _note_of(item: Item) -> Note | None:
    """Read a note; None if it is damaged: verify names it."""
    if not is_sound(item):
        return None
    noted = msgspec.json.decode(item["noted"]["S"])
    return Note(sk_of(item), noted["session_id"], noted["log"], noted["at"], noted["owner"])


async def _withdraw(table: Table, note: Note, item: Item, now: float, deadline: float) -> bool:
    """Remove the note of staged rows: from then on nobody can publish them. False: somebody has changed it."""
    notes = cleanup_key(table.namespace)
    writes = [table.delete(notes, note.sk, "noted = :noted", **{":noted": item["noted"]})]
    if not note.owner:
        ended = new_state.marker_item(table, note.ended_sk, note.session_id, note.log, now)
        writes.append(table.put(ended))
    try:
        await table.write_together(writes, deadline)
    except errors.ConditionNotMet:
        return False
    return True


async def _remove_chunks(table: Table, note: Note, deadline: float, _: float) -> None:
    """Remove chunks that were staged for a turn, unless the turn is there.

    Its note is written again by a retry, whose first attempt may be published after all.
    """
    head = await _named(table, note, deadline)
    if head is not None:
        async for page in LogReader(table, head, deadline).blocks(1, head.last_seq, bodies=False):
            if any(block.facts.owner.startswith(note.owner) for block in page):
                return
    prefix = f"{CHUNK}{note.log}/{note.owner}"
    pk = table.key_of(note.session_id)
    keys = [(pk, sk_of(found)) for found in await table.all(pk, prefix, prefix + "~", deadline, only="sk")]
    await table.write_many(deadline, deletes=keys)


async def _remove_log(table: Table, note: Note, deadline: float, until: float) -> Removed | None:
    """Remove a log that ended. None: it is that of the session, whose note was written again behind its publication."""
    removed = None
    if await _named(table, note, deadline) is None:
        removed = await remove(table, table.key_of(note.session_id), {note.log}, deadline, until=until)
    if removed is None or removed.is_all:
        await table.write_many(deadline, deletes=[(cleanup_key(table.namespace), note.ended_sk)])
    return removed


async def _named(table: Table, note: Note, deadline: float) -> Head | None:
    """Return the head of the session if it names the log of the note. Read behind the note: nobody publishes it now."""
    stored = await table.stored_head(note.session_id, deadline)
    return stored.head if stored is not None and stored.head.log == note.log else None


async def _end_expired(table: Table, now: float, deadline: float, until: float) -> None:
    """End every session that has expired: its name goes, and its log is noted for removal."""
    async for page in table.pages(names_key(table.namespace), None, None, deadline, limit=AT_ONCE, only="sk"):
        names = [sk_of(item) for item in page]
        found = await table.get_many([(table.key_of(name), HEAD) for name in names], deadline)
        for name in names:
            pk = table.key_of(name)
            item = found.get((pk, HEAD))
            stored = read_head(name, item) if item and is_sound(item) else None  # a damaged head may be of a living one
            if stored is None or stored.living(now) is not None:
                continue
            head = stored.head
            trace = StoredHead(urandom(12), Head(name, lease=None if head.life else head.lease))
            writes = [
                table.put_head(head_item(pk, trace, now + 3600), stored),
                table.delete(names_key(table.namespace), name),
            ]
            if head.log:
                sk = new_state.ended_sk(name, head.log)
                writes.append(table.put(new_state.marker_item(table, sk, name, head.log, now)))
            try:
                await table.write_together(writes, deadline)
            except errors.ConditionNotMet:
                continue  # somebody has begun a new life
        if time.monotonic() >= until:
            return
