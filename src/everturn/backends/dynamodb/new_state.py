"""Makes the writes of a planned change: the new head, the entries, the change, and whatever else it touches. Pure.

change.py sends them. All names of a new life are chosen here.
"""

from __future__ import annotations

from os import urandom
from typing import Any

import msgspec

from everturn.backend import BeginEffect, ChangeRequest, Plan, State, StoredEffect, UndoStep, stamped
from everturn.backends.dynamodb.entry_blocks import block_items, size_of
from everturn.backends.dynamodb.stored_form import (
    BEGUN,
    EFFECT,
    JUMPS,
    SNAPSHOT,
    SUMMARY,
    Head,
    Item,
    StoredHead,
    changes_item,
    cleanup_key,
    encode,
    names_key,
    number,
    text_item,
)
from everturn.backends.dynamodb.table import IS_NEW, Table
from everturn.core.codec import EntryRow, digest
from everturn.errors import MemoryStoreBackendError
from everturn.model import SUMMARY as SUMMARY_KIND
from everturn.transfer.session_lines import ChangePart, EffectPart, SnapshotPart

UNDO_STEPS = 10  # how many a session keeps
JUMPS_IN_HEAD, JUMPS_IN_BLOCK = 100, 50
TRANSACTION_BYTES, TRANSACTION_ITEMS = 3_000_000, 90  # DynamoDB takes 4 MB and 100
APART, POINTERS = 20_000, 20  # entries, and pointers to summaries, up to which all goes into the transaction
HEAD_BYTES = 380_000  # up to which a change may add an undo step: an append finds room behind it
STAGED, ENDED = "staged", "ended"


class Made(msgspec.Struct, frozen=True, gc=False):
    """The writes of a change, beside that of the head. `staged` are written before: nobody can reach them yet."""

    stored: StoredHead
    change: ChangePart
    writes: list[dict[str, Any]]
    staged: list[Item]
    effect: StoredEffect | None = None


def new_log(life: str, now: float) -> str:
    """Name the log of a life. A later one sorts behind: a query backwards from the head meets the latest life first."""
    return f"{max(0, int(now * 1000)):015d}-{life}-{urandom(3).hex()}"


def after(
    table: Table,
    stored: StoredHead | None,
    living: Head | None,
    request: ChangeRequest,
    plan: Plan,
    now: float,
    lives_from: float,
) -> Made:
    """Make everything that a plan writes. `stored` is the head that it replaces, `living` the session in it, if any.

    `lives_from` is the moment from which a TTL counts: steady_clock.py.
    """
    pk = table.key_of(request.session_id)
    action = request.action
    writes: list[dict[str, Any]] = []
    head = living
    if head is None:
        head = born(request.session_id, request.life, request.ttl, now)
        writes += birth_writes(table, stored, head)
    version, before = head.version + 1, head.state
    start = head.last_seq + 1
    first = start + len(plan.carried)
    rows: list[EntryRow] = [
        (turn + index, now, draft.checksum, draft.body, draft.kind, turn)
        for turn, drafts in ((start, plan.carried), (first, plan.drafts))
        for index, draft in enumerate(drafts)
    ]
    size = sum(len(row[3]) for row in rows)
    apart = size > TRANSACTION_BYTES or len(rows) > APART
    blocks, chunks = block_items(pk, head.log, rows, request.call.hex(), apart=apart)
    writes += map(table.put, blocks)
    pointers = [summary_item(pk, head.log, row[0]) for row in rows if row[4] == SUMMARY_KIND]
    jumps, jump_blocks, jump_items = _jumps(pk, head, start, plan.follows)
    writes += map(table.put, jump_items)
    if plan.deleted is not None:
        writes.append(table.delete(pk, f"{SNAPSHOT}{head.log}/{plan.deleted}"))
    if plan.snapshot is not None:
        part = SnapshotPart(plan.snapshot.snapshot_id, plan.snapshot.label, version, now, plan.state)
        writes.append(table.put(snapshot_item(pk, head.log, part)))
    undo = head.undo
    if plan.undoable:
        step = UndoStep(version, action.kind, plan.state.head, before.messages - plan.state.messages, before)
        undo = (*undo, step)[-UNDO_STEPS:]
    if plan.undone is not None:
        undo = undo[:-1]
    ttl = plan.ttl.seconds if plan.ttl is not None else head.ttl
    lease = stored.head.lease if stored is not None else None
    if lease is not None and not lease.life:
        lease = msgspec.structs.replace(lease, life=head.life)  # it was taken before the life began, and ends with it
    expires_at = None if ttl is None else lives_from + ttl
    if expires_at is not None and head.expires_at is not None and plan.ttl is None:
        expires_at = max(expires_at, head.expires_at)  # a change by a clock that is behind does not shorten the TTL
    is_first = isinstance(action, BeginEffect) and plan.effect is not None and plan.effect.attempt == 1
    changed = msgspec.structs.replace(
        head,
        version=version,
        last_seq=head.last_seq + len(rows),
        state=plan.state,
        size=head.size + size,
        dimension=head.dimension or plan.dimension,
        changed_at=now,
        ttl=ttl,
        expires_at=expires_at,
        call=request.call,
        snapshots=head.snapshots + (plan.snapshot is not None) - (plan.deleted is not None),
        effects=head.effects + is_first,
        noted=head.effects + 1 if is_first else head.noted,  # change.py has seen to the others
        summaries=head.summaries + len(pointers),
        marked_at=version if plan.snapshot or plan.deleted or plan.effect else head.marked_at,
        undo=undo,
        jumps=jumps,
        jump_blocks=jump_blocks,
        lease=lease,
        facts=head.facts if plan.facts is None else {**plan.facts},
    )
    if plan.undoable:
        _check_size(table, changed)
    change = change_part(request, version, first if plan.drafts else 0, len(plan.drafts), plan.state, now)
    writes.append(table.put(changes_item(pk, head.log, [change])))
    # One that is written and then not needed does no harm: whoever follows it looks whether a summary is there.
    staged: list[Item] = pointers if len(pointers) > POINTERS else []
    writes += map(table.put, pointers if not staged else ())
    if chunks and (apart or size_of([*blocks, *chunks]) > TRANSACTION_BYTES or len(chunks) > TRANSACTION_ITEMS - 20):
        marker = f"{STAGED}/{head.log}/{request.call.hex()}"
        staged = [marker_item(table, marker, request.session_id, head.log, now, request.call.hex()), *chunks, *staged]
        writes.append(table.delete(cleanup_key(table.namespace), marker, "attribute_exists(pk)"))
    else:
        writes += map(table.put, chunks)
    effect = None if plan.effect is None else stamped(plan.effect, version, now)
    return Made(StoredHead(urandom(12), changed), change, writes, staged, effect)


def _check_size(table: Table, head: Head) -> None:
    """Raise MemoryStoreBackendError if a head has grown too large for an item: of a change that adds an undo step."""
    if (size := len(encode(head))) > HEAD_BYTES:
        raise MemoryStoreBackendError(
            f"{table.client.name}: session {head.session_id!r} would need {size:,} bytes for its state and undo steps, "
            f"which name each system message that a trim keeps; DynamoDB stores {HEAD_BYTES:,}. Nothing was changed; "
            "compact the session with drop_undo=True, then trim it with keep_system=False",
            outcome="not_written",
        )


def born(session_id: str, life: str, ttl: float | None, now: float) -> Head:
    """Make the head of a life that begins."""
    return Head(session_id, life, new_log(life, now), ttl=ttl, created_at=now, changed_at=now)


def birth_writes(table: Table, stored: StoredHead | None, head: Head) -> list[dict[str, Any]]:
    """Make the writes for a life that begins: its name in the list of sessions; its predecessor is to be removed."""
    # A name that is there without a head: the head is lost.
    condition = IS_NEW if stored is None else None
    writes = [table.put(text_item(names_key(table.namespace), head.session_id), condition)]
    if stored is not None and stored.head.log:
        old = stored.head.log
        writes.append(
            table.put(marker_item(table, ended_sk(head.session_id, old), head.session_id, old, head.created_at))
        )
    return writes


def marker_item(table: Table, sk: str, session_id: str, log: str, now: float, owner: str = "") -> Item:
    """Make the item that notes a log, or chunks of it, to be removed once nobody needs them."""
    noted = encode({"session_id": session_id, "log": log, "at": now, "owner": owner}).decode()
    return text_item(cleanup_key(table.namespace), sk, noted=noted)


def ended_sk(session_id: str, log: str = "") -> str:
    """Name the note of a log that ended; without a log: the beginning of all notes of a session."""
    return f"{ENDED}/{digest(session_id.encode()).hex()}/{log}"


def snapshot_item(pk: str, log: str, part: SnapshotPart) -> Item:
    """Make the item of a snapshot."""
    return text_item(pk, f"{SNAPSHOT}{log}/{part.id}", snapshot=encode(part).decode())


def summary_item(pk: str, log: str, seq: int) -> Item:
    """Make the item that says where a summary is, for reads of the part of a history that a fold hides."""
    return text_item(pk, f"{SUMMARY}{log}/{number(seq)}")


def jumps_item(pk: str, log: str, block: int, jumps: tuple[tuple[int, int], ...]) -> Item:
    """Make the item of some jumps, newest first."""
    return text_item(pk, f"{JUMPS}{log}/{number(block)}", jumps=encode(jumps).decode())


def effect_item(pk: str, log: str, row: StoredEffect) -> Item:
    """Make the item of an effect. Raises MemoryStoreBackendError if it is larger than an item can be."""
    sk = f"{EFFECT}{log}/{digest(row.key.encode()).hex()}"
    text = encode(EffectPart.of(row)).decode()
    if len(text.encode()) > 390_000:
        what = f"the effect {row.key!r} has {len(text):,} characters; DynamoDB stores 390,000 bytes of one"
        raise MemoryStoreBackendError(what, outcome="not_written")
    return text_item(pk, sk, effect=text, stamp=f"{row.began} {row.ended}")


def begun_item(pk: str, log: str, key: str) -> Item:
    """Make the note that an effect was begun: the effect does not begin again, should its item be lost."""
    return text_item(pk, f"{BEGUN}{log}/{digest(key.encode()).hex()}")


def effect_writes(table: Table, pk: str, made: Made, before: Item | None) -> list[dict[str, Any]]:
    """Make the write of the effect that a change begins or ends, on the condition that it is as it was.

    Where it begins for the first time, a note of that comes behind, on the condition that there is none.
    """
    assert made.effect is not None  # noqa: S101 - the caller looked
    log = made.stored.head.log
    item = effect_item(pk, log, made.effect)
    if before:
        return [table.put(item, "stamp = :stamp", **{":stamp": before["stamp"]})]
    return [table.put(item, IS_NEW), table.put(begun_item(pk, log, made.effect.key), IS_NEW)]


def change_part(request: ChangeRequest, version: int, first: int, count: int, state: State, now: float) -> ChangePart:
    """Make the record of a change."""
    action = request.action
    named = (getattr(action, "snapshot_id", None), getattr(action, "label", None))
    known = (version, action.kind, first, count, now, request.call, state)
    return ChangePart(*known, key=request.key, content=request.content, snapshot_id=named[0], label=named[1])


def _jumps(pk: str, head: Head, first: int, follows: int | None) -> tuple[tuple[tuple[int, int], ...], int, list[Item]]:
    """Add a jump. If the head has many, the oldest of them move into an item."""
    if follows is None:
        return head.jumps, head.jump_blocks, []
    jumps = ((first, follows), *head.jumps)
    if len(jumps) <= JUMPS_IN_HEAD:
        return jumps, head.jump_blocks, []
    kept, moved = jumps[:-JUMPS_IN_BLOCK], jumps[-JUMPS_IN_BLOCK:]
    block = head.jump_blocks + 1
    return kept, block, [jumps_item(pk, head.log, block, moved)]
