"""Erases a session: one transaction ends it and leaves a trace of the erasure, then its items are removed in steps.

The trace is a head without a life: a request that was planned before the erasure and arrives later meets another tag.
It is removed by the table's TTL.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from os import urandom
from typing import Any

import msgspec

from everturn.backend import REMEMBERED, Erasure, State
from everturn.backends._shared.verification import SURPRISES
from everturn.backends.dynamodb import errors, new_state
from everturn.backends.dynamodb.change import TOMBSTONE
from everturn.backends.dynamodb.entry_blocks import block_of
from everturn.backends.dynamodb.head_queue import Move, QueuePlace
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.stored_form import (
    CHUNK,
    ENTRIES,
    HEAD,
    PURGE,
    RECEIPTS,
    SNAPSHOT,
    Head,
    Item,
    StoredHead,
    cleanup_key,
    encode,
    head_item,
    is_sound,
    names_key,
    sk_of,
    text_item,
)
from everturn.backends.dynamodb.table import Table, gone, read_head
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry
from everturn.model import ErasureReceipt
from everturn.transfer.session_lines import ChangePart


class Removed(msgspec.Struct):
    """Numbers of what was removed: entries, snapshots, bytes of bodies."""

    entries: int = 0
    snapshots: int = 0
    bytes: int = 0
    is_all: bool = True


async def erase(
    table: Table, session_id: str, life: str | None, version: int | None, now: float, deadline: float
) -> Erasure:
    """Erase a session (Backend.erase). With `version`, only if it is at that one."""
    begun = time.monotonic()
    pk = table.key_of(session_id)
    logs: set[str] = set()
    try:
        stored = await table.head(session_id, deadline)
    except CorruptEntry:
        if life is not None or version is not None:
            raise
        logs = await _end_damaged(table, pk, session_id, now, deadline)
    else:
        if not await _end(table, pk, stored, (session_id, life, version), now, deadline):
            return Erasure(ErasureReceipt(session_id, 0, 0, 0, complete=True), spared=True)
    notes = cleanup_key(table.namespace)
    prefix = new_state.ended_sk(session_id)
    ended = [sk_of(item) for item in await table.all(notes, prefix, prefix + "~", deadline, only="sk")]
    removed = Removed()
    logs.update(sk.rpartition("/")[2] for sk in ended)
    if logs:
        # A part of the time is kept for the answer.
        removed = await remove(table, pk, logs, deadline, until=begun + 0.8 * (deadline - begun))
        if removed.is_all:
            await table.write_many(deadline, deletes=[(notes, sk) for sk in ended])
    receipt = ErasureReceipt(session_id, removed.entries, removed.snapshots, removed.bytes, complete=removed.is_all)
    return Erasure(receipt)


async def _end_damaged(table: Table, pk: str, session_id: str, now: float, deadline: float) -> set[str]:
    """End a session whose head cannot be read, or is lost. Returns the names of its logs. Nobody can begin it anew
    before. Raises CorruptEntry if it has changed meanwhile."""
    found = await table.get(pk, HEAD, deadline)
    sks = [sk_of(item) for item in await table.all(pk, None, None, deadline, only="sk")]
    logs = {sk[1:].partition("/")[0] for sk in sks if "/" in sk}
    trace = head_item(pk, StoredHead(urandom(12), Head(session_id)), now + TOMBSTONE)
    writes = [table.put_in_place(trace, found), table.delete(names_key(table.namespace), session_id)]
    for log in sorted(logs)[:50]:
        note = new_state.marker_item(table, new_state.ended_sk(session_id, log), session_id, log, now)
        writes.append(table.put(note))
    try:
        await table.write_together(writes, deadline)
    except errors.ConditionNotMet as exc:
        raise gone(table.client.name) from exc
    return logs or {""}


async def _end(
    table: Table,
    pk: str,
    stored: StoredHead | None,
    wanted: tuple[str, str | None, int | None],
    now: float,
    deadline: float,
) -> bool:
    """End a session, whose id, life and version are `wanted`. False: another life or version is there."""
    session_id, life, version = wanted
    place = QueuePlace(table, session_id, deadline)
    async with place.held():
        while True:
            living = stored.living(now) if stored else None
            if living is not None and (life not in (None, living.life) or version not in (None, living.version)):
                return False
            try:
                await _write_end(table, pk, session_id, stored, now, deadline)
            except errors.ConditionNotMet as exc:
                stored = await place.next_head(read_head(session_id, exc.items[0]))
            else:
                place.written(Move())
                return True


async def _write_end(
    table: Table, pk: str, session_id: str, stored: StoredHead | None, now: float, deadline: float
) -> None:
    """End the session in one transaction. Raises ConditionNotMet if it has changed."""
    trace = StoredHead(urandom(12), Head(session_id))
    writes = [table.put_head(head_item(pk, trace, now + TOMBSTONE), stored)]
    writes.append(table.delete(names_key(table.namespace), session_id))
    if stored is not None and stored.head.life:
        log = stored.head.log
        writes.append(
            table.put(new_state.marker_item(table, new_state.ended_sk(session_id, log), session_id, log, now))
        )
        receipts = await _receipts(table, pk, stored.head, deadline)
        item = text_item(pk, RECEIPTS, receipts=_encoded(receipts))
        writes.append(table.put({**item, PURGE: {"N": str(int(now + TOMBSTONE))}}))
    await table.write_together(writes, deadline)


async def _receipts(table: Table, pk: str, head: Head, deadline: float) -> list[tuple[str, ChangePart]]:
    """Collect the receipts of calls whose answers may have been lost, the latest first: REMEMBERED at the most.

    Nothing in them was written by a caller. No clock chooses them: that of another writer may be minutes behind, and a
    call of a moment ago would seem to be old.
    """
    found: list[tuple[str, ChangePart]] = []
    async for page in _sound_pages(LogReader(table, head, deadline)):
        for part in page:
            if len(found) == REMEMBERED:
                return found
            known = (part.version, part.kind, part.first_seq, part.count, part.created_at, part.call)
            found.append((head.life, ChangePart(*known, State(messages=part.state.messages))))
    return (found + await _earlier(table, pk, deadline))[:REMEMBERED]


def _encoded(receipts: list[tuple[str, ChangePart]]) -> str:
    """Write receipts without the fields that none of them has: 1,024 of them share an item."""
    named = ("version", "kind", "first_seq", "count", "created_at", "call")
    told: list[Any] = [
        (
            life,
            {
                "part": "change",
                **{name: getattr(part, name) for name in named},
                "state": {"messages": part.state.messages},
            },
        )
        for life, part in receipts
    ]
    return encode(told).decode()


async def _sound_pages(log: LogReader) -> AsyncIterator[list[ChangePart]]:
    """Yield the remembered changes, newest first, up to one that is damaged: an erasure does not need them."""
    pages = log.changes_back()
    while True:
        try:
            yield await anext(pages)
        except StopAsyncIteration:
            return
        except SURPRISES as exc:
            if is_interruption(exc):
                raise
            return


async def _earlier(table: Table, pk: str, deadline: float) -> list[tuple[str, ChangePart]]:
    item = await table.get(pk, RECEIPTS, deadline)
    if item is None or not is_sound(item):
        return []
    return msgspec.json.decode(item["receipts"]["S"], type=list[tuple[str, ChangePart]])


async def remove(table: Table, pk: str, logs: Collection[str], deadline: float, *, until: float) -> Removed:
    """Remove the items of logs that nobody can reach any more, as far as time allows."""
    removed = Removed()
    async for page in table.pages(pk, None, None, deadline):
        doomed = [item for item in page if sk_of(item)[1:].partition("/")[0] in logs]
        for item in doomed:
            _count(item, removed)
        await table.write_many(deadline, deletes=[(pk, sk_of(item)) for item in doomed])
        if time.monotonic() >= until:
            removed.is_all = False
            break
    return removed


def _count(item: Item, removed: Removed) -> None:
    sk = sk_of(item)
    if sk.startswith(ENTRIES) and is_sound(item):
        with suppress(*SURPRISES):
            block = block_of(item)
            removed.entries += sum(check is not None for check in block.facts.checksums)
            removed.bytes += sum(map(len, block.bodies or ()))
    elif sk.startswith(CHUNK):
        removed.bytes += len(item["b"]["B"])
    elif sk.startswith(SNAPSHOT):
        removed.snapshots += 1
