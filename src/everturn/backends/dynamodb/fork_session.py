"""Forks a session: copies one of its states into a log that no head names yet, then names it in one transaction."""

from __future__ import annotations

from os import urandom

import msgspec

from everturn.backend import (
    ChangeOutcome,
    ChangeRequest,
    EntryRow,
    Fork,
    ForkRequest,
    Plan,
    Status,
    contains,
    path,
    reach,
)
from everturn.backends.dynamodb import errors, new_state
from everturn.backends.dynamodb.change import ChangeWriter, receipt
from everturn.backends.dynamodb.entry_blocks import block_items
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.plan_facts import hidden_summaries
from everturn.backends.dynamodb.reads import state_at
from everturn.backends.dynamodb.stored_form import Head, Item, StoredHead, changes_item, cleanup_key, head_item, key_sk
from everturn.backends.dynamodb.table import Table
from everturn.backends.dynamodb.transfer import _jump_blocks
from everturn.core.codec import missing
from everturn.core.paths import State, minus
from everturn.model import SUMMARY

PORTION = 2_000_000  # bytes of bodies that are written at a time


async def fork(
    table: Table, writer: ChangeWriter, request: ForkRequest, moments: tuple[float, float], deadline: float
) -> ChangeOutcome:
    """Fork a session as Backend.fork says: the target is there as a whole, or not at all. `moments`: now, and the one
    from which a TTL counts."""
    now, _ = moments
    digests = (request.key, request.content)
    birth = ChangeRequest(request.target, Fork(), request.call, request.ttl, *digests, retry=request.retry)
    while True:
        stored = await table.head(request.target, deadline)
        target = stored.living(now) if stored else None
        again = await writer.recall(birth, stored, target, deadline)
        if again is not None:
            return again
        if target is not None:
            return ChangeOutcome(Status.EXISTS, target.life, target.version)
        seen = await table.head(request.source, deadline)
        source = seen.living(now) if seen else None
        version, life = (source.version, source.life) if source else (0, "")
        if request.expected_version not in (None, version) or request.expected_life not in (None, life):
            return ChangeOutcome(Status.CONFLICT, life, version)
        if source is None:
            return ChangeOutcome(Status.NO_SESSION)
        log = LogReader(table, source, deadline)
        state = await state_at(log, request.at)
        if isinstance(state, Status):
            return ChangeOutcome(state, life, version)
        try:
            return await _copy(table, log, state, birth, stored, moments, deadline)
        except errors.ConditionNotMet:
            continue  # somebody made a session of that name, or the staged rows have been removed


async def _copy(
    table: Table,
    log: LogReader,
    state: State,
    birth: ChangeRequest,
    stored: StoredHead | None,
    moments: tuple[float, float],
    deadline: float,
) -> ChangeOutcome:
    now, _ = moments
    head = new_state.born(birth.session_id, birth.life, birth.ttl, now)
    pk = table.key_of(birth.session_id)
    notes, note = cleanup_key(table.namespace), f"{new_state.STAGED}/{head.log}/"
    await table.write_many(deadline, puts=[new_state.marker_item(table, note, birth.session_id, head.log, now)])
    size, summaries = await _copy_entries(table, log, state, pk, head, deadline)
    # The jumps of the path alone: the copy has no other branches.
    ranges = path(state.head, await log.jumps())
    on_path = tuple(jump for jump in await log.jumps() if contains(ranges, jump[0]) and jump[0] <= state.head)
    jumps, blocks = _jump_blocks(pk, head.log, 0, (), on_path)
    await table.write_many(deadline, puts=blocks)
    made = new_state.after(table, stored, None, birth, Plan(state), *moments)
    forked = msgspec.structs.replace(
        made.stored.head,
        log=head.log,
        last_seq=state.head,
        size=size,
        summaries=summaries,
        dimension=log.head.dimension,
        forked_from=log.head.session_id,
        facts=log.head.facts,
        jumps=jumps,
        jump_blocks=len(blocks),
    )
    published = StoredHead(urandom(12), forked)
    writes = [
        table.put_head(head_item(pk, published), stored),
        table.put(changes_item(pk, head.log, [made.change])),
        table.delete(notes, note, "attribute_exists(pk)"),
        *new_state.birth_writes(table, stored, forked),
    ]
    if birth.key is not None:
        item: Item = {"pk": {"S": pk}, "sk": {"S": key_sk(forked, birth.key)}}
        writes.append(table.put({**item, "v1": {"N": "1"}, "latest": {"N": "1"}}))
    await table.write_together(writes, deadline)
    return receipt(Status.APPLIED, forked, made.change)


async def _copy_entries(
    table: Table, log: LogReader, state: State, pk: str, head: Head, deadline: float
) -> tuple[int, int]:
    """Copy the entries that a state shows. Returns the bytes of their bodies, and how many are summaries.

    Raises CorruptEntry if one is missing."""
    whole = reach([state], await log.jumps()).whole
    hidden = await log.entries(await hidden_summaries(log, state)) if state.cleared < state.floor else []
    size = summaries = 0
    some: list[EntryRow] = [row for row in hidden if row[4] == SUMMARY]
    for first, last in whole:
        there: list[tuple[int, int]] = []
        async for page in log.blocks(first, last):
            for block in page:
                rows = await log.rows([block], first, last)
                there += ((row[0], row[0]) for row in rows)
                some += rows
                if sum(len(row[3]) for row in some) >= PORTION:
                    more, listed = await _write(table, pk, head.log, some, deadline)
                    size, summaries, some = size + more, summaries + listed, []
        if lost := minus([(first, last)], there):
            await log.settle_entry(lost[0][0])
            raise missing(log.head.session_id, lost[0][0])
    more, listed = await _write(table, pk, head.log, some, deadline)
    return size + more, summaries + listed


async def _write(table: Table, pk: str, log: str, rows: list[EntryRow], deadline: float) -> tuple[int, int]:
    blocks, chunks = block_items(pk, log, sorted(rows), urandom(8).hex(), apart=False)
    pointers = [new_state.summary_item(pk, log, row[0]) for row in rows if row[4] == SUMMARY]
    await table.write_many(deadline, puts=[*blocks, *chunks, *pointers])
    return sum(len(row[3]) for row in rows), len(pointers)
