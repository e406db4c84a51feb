"""Exports and imports of sessions, for copies between backends (Portable).

Staged rows are a log that no head names yet. One transaction lets the head name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import urandom
from typing import Any, TypeAlias

import msgspec

from everturn.backend import ChangeOutcome, LeaseRow, Status, UndoStep
from everturn.backends.dynamodb import errors, new_state
from everturn.backends.dynamodb.entry_blocks import block_items, size_of
from everturn.backends.dynamodb.log_reader import LogReader, log_span
from everturn.backends.dynamodb.new_state import JUMPS_IN_BLOCK, JUMPS_IN_HEAD, STAGED, TRANSACTION_BYTES
from everturn.backends.dynamodb.stored_form import SUMMARY as SUMMARY_SK
from everturn.backends.dynamodb.stored_form import (
    Head,
    Item,
    StoredHead,
    changes_item,
    cleanup_key,
    head_item,
    key_sk,
    names_key,
    opened,
    text_item,
    versions_of,
)
from everturn.backends.dynamodb.table import Table
from everturn.core.codec import EntryRow
from everturn.core.paths import Jump
from everturn.model import SUMMARY
from everturn.transfer.protocol import Arrival, Mark, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EffectPart, EntryPart, Outline, Portion, UndoPart

PACKED_CHANGES = 500  # in one item
IN_TRANSACTION = 80  # items that are added to a session where it stands
Moments: TypeAlias = tuple[float, float]
"""Of a change: now, and the moment from which a TTL counts (steady_clock.py)."""


# --- out -------------------------------------------------------------------------------------------------------------


async def outline(log: LogReader, seen_at: float) -> Outline:
    """Make the outline of a session (Portable.outline)."""
    head = log.head
    return Outline(
        *(head.session_id, head.life, head.version, head.call, head.last_seq, head.state),
        *(head.created_at, head.changed_at, seen_at),
        head.ttl,
        head.expires_at,
        head.dimension,
        head.forked_from,
        tuple(reversed(await log.jumps())),
        tuple(await log.snapshots()),
        tuple(UndoPart(step.id, step.kind, step.moved_to, step.hidden, step.before) for step in head.undo),
        tuple(map(EffectPart.of, await log.effects())),
        facts=head.facts,
    )


async def portion(log: LogReader, request: PortionRequest) -> Portion:
    """Read the next rows of a life (Portable.portion)."""
    entries = await _entries(log, request)
    if request.is_filled_by(entries):
        return Portion(tuple(entries), is_last=False)
    remembered = await _changes(log, request)
    return Portion(tuple(entries), tuple(remembered), is_last=len(remembered) < request.changes)


async def _entries(log: LogReader, request: PortionRequest) -> list[EntryPart]:
    first, last = request.after_seq + 1, request.last_seq
    found: list[EntryPart] = []
    size = 0
    if first > last:
        return found
    async for page in log.blocks(first, last):
        for block in page:
            for row in await log.rows([block], first, last):
                found.append(EntryPart.of(row))
                size += len(row[3])
                if len(found) >= request.entries or size >= request.bytes:
                    return found
    return found


async def _changes(log: LogReader, request: PortionRequest) -> list[ChangePart]:
    """Read changes in order. They are stored so that they can be read backwards: most reads want the latest."""
    found: list[ChangePart] = []
    async for page in log.changes_back(1000, request.last_version):
        found += (part for part in page if part.version > request.after_version)
        if page and page[-1].version <= request.after_version:
            break
    some = sorted(found, key=lambda part: part.version)[: request.changes]
    lost = await log.unreadable(some)
    return [msgspec.structs.replace(part, readable=not is_lost) for part, is_lost in zip(some, lost, strict=True)]


# --- in --------------------------------------------------------------------------------------------------------------


class StagedLog(msgspec.Struct, frozen=True):
    """The note of staged rows: the bytes that they have, and up to which seq they are counted."""

    session_id: str
    log: str
    at: float
    owner: str = ""
    bytes: int = 0
    last_seq: int = 0


def _note_sk(log: str) -> str:
    return f"{STAGED}/{log}/"


async def _note(table: Table, log: str, session_id: str, deadline: float) -> StagedLog | None:
    item = await table.get(cleanup_key(table.namespace), _note_sk(log), deadline)
    note = None if item is None else msgspec.json.decode(opened(item)["noted"]["S"], type=StagedLog)
    return note if note is not None and note.session_id == session_id else None


def _note_item(table: Table, note: StagedLog) -> Item:
    noted = msgspec.json.encode(note).decode()
    return text_item(cleanup_key(table.namespace), _note_sk(note.log), noted=noted)


async def stage(table: Table, request: Staging, now: float, deadline: float) -> str | None:
    """Write rows where no reader sees them (Portable.stage); None if those staged before have been removed."""
    note: StagedLog | None
    if request.handle is None:
        note = StagedLog(request.session_id, new_state.new_log(request.life or "copy", now), now)
    else:
        note = await _note(table, request.handle, request.session_id, deadline)
        if note is None:
            return None
    new = [part for part in request.portion.entries if part.seq > note.last_seq]
    counted = msgspec.structs.replace(
        note,
        at=now,
        bytes=note.bytes + sum(part.size for part in new),
        last_seq=new[-1].seq if new else note.last_seq,
    )
    if request.handle is None:
        await table.write_many(deadline, puts=[_note_item(table, note)])
    rows = await _items(table, request.session_id, note.log, request.portion, deadline)
    await table.write_many(deadline, puts=rows)
    # On the condition that the note is as it was: one that was removed, or published with its rows, does not come back.
    before = {":noted": _note_item(table, note)["noted"]}
    try:
        await table.write_together([table.put(_note_item(table, counted), "noted = :noted", **before)], deadline)
    except errors.ConditionNotMet:
        ended = new_state.ended_sk(note.session_id, note.log)
        left = new_state.marker_item(table, ended, note.session_id, note.log, now)
        await table.write_many(deadline, puts=[left])  # of these rows, some may have come behind the removal
        return None
    return note.log


async def _items(table: Table, session_id: str, log: str, portion: Portion, deadline: float) -> list[Item]:
    """Make the items of entries and changes. Those of keys also name earlier uses."""
    pk = table.key_of(session_id)
    rows: list[EntryRow] = [
        (part.seq, part.created_at, part.checksum, bytes(part.body), part.kind, part.turn) for part in portion.entries
    ]
    blocks, chunks = block_items(pk, log, rows, urandom(8).hex(), apart=False)
    items = [*blocks, *chunks]
    items += (new_state.summary_item(pk, log, row[0]) for row in rows if row[4] == SUMMARY)
    items += packed_changes(pk, log, portion.changes)
    return items + await _key_items(table, pk, log, portion.changes, deadline)


def packed_changes(pk: str, log: str, changes: Sequence[ChangePart]) -> list[Item]:
    """Make the items of changes: those that follow each other share one."""
    items: list[Item] = []
    some: list[ChangePart] = []
    for part in changes:
        if some and (part.version != some[-1].version + 1 or len(some) == PACKED_CHANGES):
            items.append(changes_item(pk, log, some))
            some = []
        some.append(part)
    return [*items, changes_item(pk, log, some)] if some else items


async def _key_items(table: Table, pk: str, log: str, changes: Iterable[ChangePart], deadline: float) -> list[Item]:
    uses: dict[bytes, list[int]] = {}
    for part in changes:
        if part.key is not None:
            uses.setdefault(part.key, []).append(part.version)
    head = Head("", log=log)
    known = await table.get_many([(pk, key_sk(head, key)) for key in uses], deadline)
    items: list[Item] = []
    for key, versions in uses.items():
        sk = key_sk(head, key)
        every = sorted({*versions_of(known.get((pk, sk), {})), *versions})
        marks = {f"v{version}": {"N": "1"} for version in every}
        items.append({"pk": {"S": pk}, "sk": {"S": sk}, **marks, "latest": {"N": str(every[-1])}})
    return items


async def restore(table: Table, arrival: Arrival, moments: Moments, deadline: float) -> ChangeOutcome:
    """Publish the session in one step (Portable.restore)."""
    out = arrival.outline
    stored = await table.head(out.session_id, deadline)
    living = stored.living(moments[0]) if stored else None
    mark = None if living is None else Mark(living.life, living.version, living.call)
    if mark != arrival.onto:
        return ChangeOutcome(Status.EXISTS, *((living.life, living.version) if living else ()))
    try:
        if arrival.handle is None and stored is not None and living is not None:
            return await _extend(table, stored, living, arrival, moments, deadline)
        return await _publish(table, stored, living, arrival, moments, deadline)
    except errors.ConditionNotMet as exc:
        if exc.items[0] is errors.UNASKED:
            return ChangeOutcome(Status.MOVED)  # the note of the staged rows has gone, and they with it
        there = await table.head(out.session_id, deadline)
        found = there.living(moments[0]) if there else None
        return ChangeOutcome(Status.EXISTS, *((found.life, found.version) if found else ()))


async def _publish(
    table: Table, stored: StoredHead | None, living: Head | None, arrival: Arrival, moments: Moments, deadline: float
) -> ChangeOutcome:
    """Let the head name a log that was staged; the rows that come with the arrival are staged first."""
    out = arrival.outline
    handle = arrival.handle
    if handle is None or arrival.portion.entries or arrival.portion.changes:
        staging = Staging(out.session_id, out.version, arrival.portion, handle, out.life)
        handle = await stage(table, staging, moments[0], deadline)
    note = None if handle is None else await _note(table, handle, out.session_id, deadline)
    if handle is None or note is None:
        return ChangeOutcome(Status.MOVED)
    pk = table.key_of(out.session_id)
    jumps, blocks = _jump_blocks(pk, handle, 0, (), tuple(reversed(out.jumps)))
    pointers = [new_state.snapshot_item(pk, handle, part) for part in out.snapshots]
    effects = [new_state.effect_item(pk, handle, part.row) for part in out.effects]
    notes = [new_state.begun_item(pk, handle, part.key) for part in out.effects]
    await table.write_many(deadline, puts=[*blocks, *pointers, *effects, *notes])
    listed = await table.all(pk, *log_span(SUMMARY_SK, handle), deadline, only="sk")
    head = msgspec.structs.replace(
        _head_of(arrival, handle, note.bytes, moments),
        jumps=jumps,
        jump_blocks=len(blocks),
        effects=len(effects),
        noted=len(effects),
        summaries=len(listed),
        lease=_lease_of(stored, living, out.life),
    )
    writes = [
        table.put_head(head_item(pk, StoredHead(urandom(12), head)), stored),
        table.delete(cleanup_key(table.namespace), _note_sk(handle), "attribute_exists(pk)"),
        table.put(text_item(names_key(table.namespace), out.session_id)),
    ]
    if stored is not None and stored.head.log:
        old = stored.head.log
        sk = new_state.ended_sk(out.session_id, old)
        writes.append(table.put(new_state.marker_item(table, sk, out.session_id, old, moments[0])))
    await table.write_together(writes, deadline)
    return ChangeOutcome(Status.APPLIED, out.life, out.version)


def _lease_of(stored: StoredHead | None, living: Head | None, life: str) -> LeaseRow | None:
    """Return the lease that holds on in the life that arrives: one of that life, or one taken while there was none."""
    lease = stored.head.lease if stored is not None else None
    if lease is None or (living.life != life if living else lease.life):
        return None
    return msgspec.structs.replace(lease, life=life)


async def _extend(
    table: Table, stored: StoredHead, living: Head, arrival: Arrival, moments: Moments, deadline: float
) -> ChangeOutcome:
    """Add rows to the session that is there, in one transaction."""
    out = arrival.outline
    pk = table.key_of(out.session_id)
    log = LogReader(table, living, deadline)
    new = tuple(part for part in arrival.portion.entries if part.seq > living.last_seq)
    added = Portion(new, tuple(part for part in arrival.portion.changes if part.version > living.version))
    items = await _items(table, out.session_id, living.log, added, deadline)
    # An item of a key or a pointer to a summary that is written and then not needed does no harm.
    ahead = [item for item in items if item["sk"]["S"][0] in "KSX"]
    fresh = tuple((seq, after) for seq, after in reversed(out.jumps) if seq > living.last_seq)
    jumps, blocks = _jump_blocks(pk, living.log, living.jump_blocks, living.jumps, fresh)
    puts = [item for item in items if item not in ahead] + blocks
    had = {part.id: part for part in await log.snapshots()}
    wanted = {part.id: part for part in out.snapshots}
    puts += (new_state.snapshot_item(pk, living.log, part) for name, part in wanted.items() if had.get(name) != part)
    deletes = [log.snapshot_sk(name) for name in had if name not in wanted]
    effects = {row.key: row for row in await log.effects()}
    puts += (
        new_state.effect_item(pk, living.log, part.row) for part in out.effects if effects.get(part.key) != part.row
    )
    begun = {part.key for part in out.effects}.difference(effects)
    puts += (new_state.begun_item(pk, living.log, key) for key in begun)
    if len(puts) + len(deletes) > IN_TRANSACTION or size_of(puts) > TRANSACTION_BYTES:
        return await _publish_copy(table, stored, living, arrival, moments, deadline)
    size = living.size + sum(part.size for part in new)
    head = msgspec.structs.replace(
        _head_of(arrival, living.log, size, moments),
        jumps=jumps,
        effects=len(effects) + len(begun),
        noted=living.noted + len(begun),
        summaries=living.summaries + sum(part.kind == SUMMARY for part in new),
        jump_blocks=living.jump_blocks + len(blocks),
        lease=living.lease,
        needed=living.needed,
    )
    await table.write_many(deadline, puts=ahead)
    writes: list[dict[str, Any]] = [table.put_head(head_item(pk, StoredHead(urandom(12), head)), stored)]
    writes += map(table.put, puts)
    writes += (table.delete(pk, sk) for sk in deletes)
    await table.write_together(writes, deadline)
    return ChangeOutcome(Status.APPLIED, out.life, out.version)


async def _publish_copy(
    table: Table, stored: StoredHead, living: Head, arrival: Arrival, moments: Moments, deadline: float
) -> ChangeOutcome:
    """Add rows by way of a staged copy of the session: they are too many for one transaction."""
    log = LogReader(table, living, deadline)
    handle: str | None = None
    seq = version = 0
    while True:
        request = PortionRequest(living.session_id, living.life, seq, living.last_seq, version, living.version)
        some = await portion(log, request)
        handle = await stage(
            table, Staging(living.session_id, living.version, some, handle, living.life), moments[0], deadline
        )
        if handle is None or some.is_last:
            break
        seq = some.entries[-1].seq if some.entries else seq
        version = some.changes[-1].version if some.changes else version
    copied = msgspec.structs.replace(arrival, handle=handle)
    return await _publish(table, stored, living, copied, moments, deadline)


def _jump_blocks(
    pk: str, log: str, blocks: int, known: tuple[Jump, ...], new: tuple[Jump, ...]
) -> tuple[tuple[Jump, ...], list[Item]]:
    """Add jumps, newest first. Returns those for the head, and the items of the others."""
    jumps = (*new, *known)
    items: list[Item] = []
    while len(jumps) > JUMPS_IN_HEAD:
        jumps, moved = jumps[:-JUMPS_IN_BLOCK], jumps[-JUMPS_IN_BLOCK:]
        items.append(new_state.jumps_item(pk, log, blocks + len(items) + 1, moved))
    return jumps, items


def _head_of(arrival: Arrival, log: str, size: int, moments: Moments) -> Head:
    out = arrival.outline
    _, lives_from = moments
    undo = tuple(UndoStep(step.version, step.kind, step.moved_to, step.hidden, step.before) for step in out.undo_steps)
    expires_at = None if arrival.expires_in is None else lives_from + arrival.expires_in
    return Head(
        *(out.session_id, out.life, log, out.version, out.last_seq, out.state, size, out.dimension),
        *(out.created_at, out.changed_at, out.ttl, expires_at, out.forked_from, out.call),
        snapshots=len(out.snapshots),
        marked_at=out.version,
        undo=undo,
        facts=out.facts,
    )
