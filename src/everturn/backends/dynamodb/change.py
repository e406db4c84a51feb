"""Applies a change: plans it on the head that is known, and writes it in one transaction if the head is still that one.

A plan that came too late is refused, and the answer has the new head: the change is planned again on it, without
another read. The head that this process wrote last is remembered, so that a lone writer needs one request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from os import urandom
from typing import Any

import msgspec

from everturn import events
from everturn.backend import (
    REMEMBERED,
    BeginEffect,
    ChangeOutcome,
    ChangeRequest,
    EndEffect,
    Status,
    StoredEffect,
    contains,
    is_fenced_off,
    is_held,
    path,
    plan_change,
)
from everturn.backends.dynamodb import errors, new_state
from everturn.backends.dynamodb.head_queue import Memories, QueuePlace
from everturn.backends.dynamodb.known_heads import KnownHeads
from everturn.backends.dynamodb.local_turns import LocalTurns
from everturn.backends.dynamodb.log_reader import LogReader, effect_of
from everturn.backends.dynamodb.plan_facts import gather
from everturn.backends.dynamodb.staged_items import StagedItems
from everturn.backends.dynamodb.stored_form import (
    HEAD,
    RECEIPTS,
    Head,
    Item,
    StoredHead,
    head_item,
    key_sk,
    opened,
    versions_of,
)
from everturn.backends.dynamodb.table import Table, read_head
from everturn.errors import MemoryStoreBackendError
from everturn.model import Snapshot
from everturn.transfer.session_lines import ChangePart

TOMBSTONE = 3600.0  # seconds that the trace of an erasure is kept: longer than DynamoDB takes a signed request
_decode_receipts = msgspec.json.Decoder(list[tuple[str, ChangePart]]).decode


class Seen(msgspec.Struct):
    """Knowledge of the table while a change is planned. `is_fresh`: the head was read for this very call.

    Items of the key and of the effect are taken to be absent until they are known: the transaction checks it.
    """

    stored: StoredHead | None
    is_fresh: bool
    key_item: Item | None = None
    knows_key: bool = False
    effect_item: Item | None = None
    knows_effect: bool = False


class ChangeWriter:
    """Applies changes to the sessions of a table."""

    def __init__(self, table: Table, clock: Callable[[], tuple[float, float]]) -> None:
        self._table = table
        self._clock = clock  # steady_clock.Clock.read
        self._turns = LocalTurns(table.client)
        self._memories = Memories()
        self.heads = KnownHeads()

    def forget_threads(self) -> None:
        """Make new locks in the child of an os.fork."""
        self._turns.forget_threads()
        self._memories.forget()
        self.heads.forget_threads()

    async def apply(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        """Apply a change (Backend.change)."""
        pk = self._table.key_of(request.session_id)
        async with self._turns.turn(pk, deadline):
            place = QueuePlace(self._table, request.session_id, deadline, self._memories.of(pk))
            async with place.held():
                return await self._apply(pk, request, place, deadline)

    async def _apply(self, pk: str, request: ChangeRequest, place: QueuePlace, deadline: float) -> ChangeOutcome:
        known = None if request.retry else self.heads.get(pk)
        seen = Seen(known, is_fresh=False) if known else await self._fresh(request.session_id, deadline)
        refusal: MemoryStoreBackendError | None = None  # the reason that the change waits for
        stale: _Stale | None = None
        told = False
        staged = StagedItems(self._table)
        while True:
            try:
                if stale is not None:
                    seen = await self._again(request.session_id, stale, place, deadline)
                return await self._attempt(pk, request, seen, place, staged, deadline)
            except _Stale as exc:
                stale = exc
                if exc.is_lost:
                    refusal = errors.contended(self._table.client.name)
            except MemoryStoreBackendError as exc:
                self.heads.drop(pk)
                is_late = time.monotonic() >= deadline
                if refusal is not None and is_late and not exc.transient and exc.outcome == "not_written":
                    raise refusal from exc  # it says more than an attempt for which there was no time left
                if exc.outcome == "unknown" or not exc.transient or is_late:
                    raise
                if not told and exc.__cause__ is not None:  # an answer of the table
                    self._tell(request.session_id, exc)
                stale, refusal, told = _Stale(exc), exc, True
            if time.monotonic() >= deadline:
                raise stale.error or errors.contended(self._table.client.name)

    async def _again(self, session_id: str, stale: _Stale, place: QueuePlace, deadline: float) -> Seen:
        """Find the head to plan on next. After a loss to others, wait for it as the place of this change says."""
        seen = stale.seen
        if stale.error is not None:
            is_lost = errors.is_contended(stale.error)  # to a change that is being written: no head came along
            return Seen(await (place.head_after_conflict() if is_lost else place.later_head()), is_fresh=True)
        if seen is None:
            return await self._fresh(session_id, deadline)
        if not stale.is_lost:
            return seen
        stored = await place.next_head(seen.stored)
        return seen if stored is seen.stored else Seen(stored, is_fresh=True)

    def _tell(self, session_id: str, error: MemoryStoreBackendError) -> None:
        source = self._table.client.watch.source
        events.tell(events.THROTTLED, source, session_id=session_id, reason=events.reason(error))

    async def _fresh(self, session_id: str, deadline: float) -> Seen:
        return Seen(await self._table.stored_head(session_id, deadline), is_fresh=True)

    async def _attempt(
        self,
        pk: str,
        request: ChangeRequest,
        seen: Seen,
        place: QueuePlace,
        staged: StagedItems,
        deadline: float,
    ) -> ChangeOutcome:
        now, lives_from = self._clock()
        living = seen.stored.living(now) if seen.stored else None
        log = LogReader(self._table, living or Head(request.session_id), deadline)
        await self._look_up(log, living, request, seen, deadline)
        if (again := await self._recalled(log, living, request, seen, deadline)) is not None:
            return self._answer(again, seen)
        version, life = (living.version, living.life) if living else (0, "")
        action = request.action
        refused = plan = None
        lease = seen.stored.head.lease if seen.stored else None
        if request.expected_version not in (None, version) or request.expected_life not in (None, life):
            refused = Status.CONFLICT
        elif request.lease and is_fenced_off(request.lease, lease, life, now):
            refused = Status.LEASE_LOST
        else:
            planned = plan_change(living, action, await gather(log, action, seen.effect_item))
            refused, plan = (planned, None) if isinstance(planned, Status) else (None, planned)
        if plan is None:
            assert refused is not None  # noqa: S101 - one of the two is
            await self._settle_refusal(pk, request, seen, log, place, deadline)
            detail = living.dimension or 0 if living else 0
            outcome = ChangeOutcome(refused, life, version, detail=detail)
            return self._with_effect(outcome, seen, living, action, now)
        if isinstance(action, BeginEffect) and not seen.effect_item and log.head.noted != log.head.effects:
            await self._note_effects(log, seen)
        if place.is_held_up(seen.stored):
            raise _Stale(seen=seen, is_lost=True)
        made = new_state.after(self._table, seen.stored, living, request, plan, now, lives_from)
        await staged.write(made.staged, deadline)
        await self._write(pk, request, seen, made, place, staged, deadline)
        outcome = receipt(Status.APPLIED, made.stored.head, made.change)
        if isinstance(action, BeginEffect | EndEffect) and made.effect is not None:
            return msgspec.structs.replace(outcome, effect=held_effect(made.effect, made.stored.head, now))
        return outcome

    async def _look_up(
        self, log: LogReader, living: Head | None, request: ChangeRequest, seen: Seen, deadline: float
    ) -> None:
        """Read the effect that is to end. (That one that is to begin is there already is told by the transaction.)"""
        if living is not None and isinstance(request.action, EndEffect) and not seen.knows_effect:
            keys = [(log.pk, HEAD), (log.pk, log.effect_sk(request.action.key))]
            head, effect = await self._table.get_together(keys, deadline)
            stored = read_head(request.session_id, head)
            if stored is None or stored.head.log != living.log:
                raise _Stale(seen=Seen(stored, is_fresh=True))
            if seen.stored is None or stored.tag != seen.stored.tag:
                raise _Stale(seen=Seen(stored, is_fresh=True, effect_item=effect, knows_effect=True))
            seen.effect_item, seen.knows_effect = effect, True
            seen.is_fresh = True

    async def _note_effects(self, log: LogReader, seen: Seen) -> None:
        """Note the effects of a session of before there were notes, if none is lost."""
        try:
            notes = await log.unnoted_effects()
        except (ValueError, MemoryStoreBackendError):
            if seen.is_fresh:
                raise
            raise _Stale from None
        await self._table.write_many(log.deadline, puts=notes)

    async def _settle_refusal(
        self, pk: str, request: ChangeRequest, seen: Seen, log: LogReader, place: QueuePlace, deadline: float
    ) -> None:
        """Make sure that a refusal is true: of the table as it is now, and also if an earlier attempt arrives later."""
        if not seen.is_fresh:
            raise _Stale
        if seen.stored is None:
            begun = await self._table.look_again(request.session_id, deadline)
            if begun is not None:
                raise _Stale(seen=Seen(begun, is_fresh=True))
        if request.key is not None and not seen.knows_key and log.head.life:
            seen.key_item = await self._table.get(pk, key_sk(log.head, request.key), deadline)
            seen.knows_key = True
            raise _Stale(seen=seen)
        if request.retry:
            # The earlier attempt may still be under way. It was planned on a tag: after this write that is no more.
            before = seen.stored or StoredHead(b"", Head(request.session_id))
            fenced = StoredHead(urandom(12), before.head)
            purge = None if before.head.life else self._clock()[0] + TOMBSTONE
            if place.is_held_up(seen.stored):
                raise _Stale(seen=seen, is_lost=True)
            move = place.move(seen.stored)
            write = self._table.move_head(head_item(pk, fenced, purge), seen.stored, move.place)
            try:
                await self._table.write_together([write], deadline)
            except errors.ConditionNotMet as exc:
                raise _Stale(seen=self._told(request.session_id, exc.items[0]), is_lost=True) from exc
            place.written(move)

    def _told(self, session_id: str, item: Item | None) -> Seen:
        """Make the knowledge of a head that came with a refusal."""
        return Seen(read_head(session_id, item), is_fresh=True)

    async def _write(
        self,
        pk: str,
        request: ChangeRequest,
        seen: Seen,
        made: new_state.Made,
        place: QueuePlace,
        staged: StagedItems,
        deadline: float,
    ) -> None:
        """Write the plan in one transaction. Raises _Stale if the table is not as it was planned on."""
        move = place.move(seen.stored, may_stay=True)
        writes = [self._table.move_head(head_item(pk, made.stored), seen.stored, move.place, move.keep), *made.writes]
        at_key = at_effect = -1
        if request.key is not None:
            at_key = len(writes)
            writes.append(_key_write(self._table, pk, made, request.key, seen.key_item))
        if made.effect is not None:
            at_effect = len(writes)
            writes += new_state.effect_writes(self._table, pk, made, seen.effect_item)
        try:
            await self._table.write_together(writes, deadline)
        except errors.ConditionNotMet as exc:
            self.heads.drop(pk)
            if seen.stored is None and exc.items[0] is errors.UNASKED:
                begun = await self._table.look_again(request.session_id, deadline)
                raise _Stale(seen=Seen(begun, is_fresh=True)) from exc
            if exc.items[0] is not errors.UNASKED:
                raise _Stale(seen=self._told(request.session_id, exc.items[0]), is_lost=True) from exc
            staged.forget()
            told = exc.items
            if 0 < at_key < len(told) and told[at_key] is not errors.UNASKED:
                seen.key_item, seen.knows_key = told[at_key], True
            if 0 < at_effect < len(told) and told[at_effect] is not errors.UNASKED:
                seen.effect_item, seen.knows_effect = told[at_effect], True
            elif exc.all_checked and at_effect > 0 and any(one is not errors.UNASKED for one in told[at_effect + 1 :]):
                raise ValueError("one of its effects is lost: there is a note that it was begun") from exc
            # The head was as it was planned on, so it is as good as read; unless it was not compared.
            seen.is_fresh = seen.is_fresh or exc.all_checked
            raise _Stale(seen=seen) from exc
        place.written(move)
        self.heads.put(pk, msgspec.structs.replace(made.stored, waiting=move.waiting))

    async def recall(
        self, request: ChangeRequest, stored: StoredHead | None, living: Head | None, deadline: float
    ) -> ChangeOutcome | None:
        """Find the first receipt of this call or key, with a head that was just read; None if neither is known."""
        seen = Seen(stored, is_fresh=True)
        log = LogReader(self._table, living or Head(request.session_id), deadline)
        if request.key is not None and living is not None:
            seen.key_item = await self._table.get(log.pk, key_sk(living, request.key), deadline)
        return await self._recalled(log, living, request, seen, deadline)

    # --- earlier attempts --------------------------------------------------------------------------------------------

    async def _recalled(
        self, log: LogReader, living: Head | None, request: ChangeRequest, seen: Seen, deadline: float
    ) -> ChangeOutcome | None:
        """Find the first receipt of this call or key; None if neither is known."""
        if request.retry:
            if living is not None and (found := await _by_call(log, request.call)) is not None:
                return receipt(Status.REPLAYED, living, found)
            erased = await self._table.get(log.pk, RECEIPTS, deadline)
            if erased is not None:
                for life, change in _decode_receipts(opened(erased)["receipts"]["S"]):
                    if change.call == request.call:
                        # The id and the label of a snapshot are no part of the receipts: they come with the retry.
                        named = {name: getattr(request.action, name, None) for name in ("snapshot_id", "label")}
                        told = msgspec.structs.replace(change, **named)
                        return receipt(Status.REPLAYED, Head(request.session_id, life), told)
        if request.key is None or living is None or not seen.key_item:
            return None
        ranges = path(living.state.head, await log.jumps())
        for version in sorted(versions_of(seen.key_item), reverse=True):
            used = await log.change(version)
            if used is None or used.key != request.key:
                continue
            # A turn that a rollback dropped may be written again; a change without a turn is never dropped.
            if used.count and not contains(ranges, used.first_seq + used.count - 1):
                continue
            status = Status.REPLAYED if used.content == request.content else Status.KEY_REUSED
            return receipt(status, living, used)
        return None

    def _answer(self, outcome: ChangeOutcome, seen: Seen) -> ChangeOutcome:
        if not seen.is_fresh:
            raise _Stale
        return outcome

    def _with_effect(
        self, outcome: ChangeOutcome, seen: Seen, living: Head | None, action: object, now: float
    ) -> ChangeOutcome:
        """Add the row of the effect that was to begin or end to the answer."""
        if living is None or not seen.effect_item or not isinstance(action, BeginEffect | EndEffect):
            return outcome
        return msgspec.structs.replace(outcome, effect=held_effect(effect_of(seen.effect_item), living, now))


class _Stale(Exception):
    """A plan that cannot be used: plan again on what is `seen` now (None: read it). `error`: why it was refused.

    `is_lost`: another change was first.
    """

    def __init__(
        self, error: MemoryStoreBackendError | None = None, *, seen: Seen | None = None, is_lost: bool = False
    ):
        super().__init__("the table is not as it was planned on")
        self.error = error
        self.seen = seen
        self.is_lost = is_lost


async def _by_call(log: LogReader, call: bytes) -> ChangePart | None:
    """Find a change by its call id among the latest REMEMBERED. Raises ValueError if one of these is lost."""
    oldest = log.head.version - REMEMBERED
    expected = log.head.version
    async for page in log.changes_back():
        for change in page:
            if change.call == call:
                return change
            if change.version != expected and (found := await log.change(expected)) is not None and found.call == call:
                return found
            expected = change.version - 1
        if page and page[-1].version <= oldest:
            return None
    found = await log.change(expected)
    return found if found is not None and found.call == call else None


def _key_write(table: Table, pk: str, made: new_state.Made, key: bytes, before: Item | None) -> dict[str, Any]:
    """Make the write of a key: its item names every version that used it. On the condition that it is as it was."""
    head = made.stored.head
    uses = {f"v{version}": {"N": "1"} for version in versions_of(before or {})}
    item: Item = {"pk": {"S": pk}, "sk": {"S": key_sk(head, key)}, **uses, f"v{head.version}": {"N": "1"}}
    item["latest"] = {"N": str(head.version)}
    if before:
        return table.put(item, "latest = :latest", **{":latest": before["latest"]})
    return table.put(item, "attribute_not_exists(pk)")


def held_effect(row: StoredEffect, head: Head, now: float) -> StoredEffect:
    """Say whether the lease is held that the effect was begun under."""
    lease = head.lease
    is_so = row.token > 0 and lease is not None and lease.token == row.token
    return msgspec.structs.replace(row, held=is_so and is_held(lease, head.life, now))


def receipt(status: Status, head: Head, change: ChangePart) -> ChangeOutcome:
    snapshot = None
    if change.kind == "snapshot" and change.snapshot_id:
        facts = (head.session_id, head.life, change.label, change.version, change.state.messages, change.created_at)
        snapshot = Snapshot(change.snapshot_id, *facts)
    first = change.first_seq if change.count else 0
    return ChangeOutcome(status, head.life, change.version, first, change.count, snapshot)
