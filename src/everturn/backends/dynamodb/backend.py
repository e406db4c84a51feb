"""DynamoDBBackend: every operation of everturn.backend.Backend, written once for blocking and asynchronous stores.

Each operation is carried out by a module beside this one. The client below decides whether a call blocks.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import urandom

import msgspec

from everturn.backend import (
    ChangeOutcome,
    ChangeRequest,
    EffectsReading,
    Erasure,
    ForkRequest,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    Order,
    Query,
    Reading,
    Take,
    Where,
    change_lease,
    reading_of,
)
from everturn.backends._shared.server_warnings import Examination
from everturn.backends._shared.steady_clock import Clock
from everturn.backends._shared.verification import SURPRISES, damaged_session
from everturn.backends.dynamodb import compaction, doctor, errors, fork_session, listing, transfer, verify
from everturn.backends.dynamodb import erase as erasure
from everturn.backends.dynamodb.change import TOMBSTONE, ChangeWriter
from everturn.backends.dynamodb.client import DynamoDBClient
from everturn.backends.dynamodb.head_queue import QueuePlace
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.reads import TableReads
from everturn.backends.dynamodb.stored_form import Head, StoredHead, head_item, names_key, sk_of
from everturn.backends.dynamodb.table import Table, gone, read_head
from everturn.core.codec import EntryRow
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry, MemoryStoreError
from everturn.model import Change, Compaction, Page, Problem
from everturn.model.health import Health
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion


@contextmanager
def corrupt_if_damaged(session_id: str) -> Iterator[None]:
    """Turn errors of values that we never wrote into CorruptEntry of this session."""
    try:
        yield
    except MemoryStoreError:
        raise
    except SURPRISES as exc:
        if is_interruption(exc):
            raise
        raise damaged_session(session_id, f"a part of it cannot be read ({exc})") from exc


class DynamoDBBackend:
    """Sessions in a table of DynamoDB. Time is this process's own: DynamoDB tells none."""

    def __init__(self, client: DynamoDBClient, namespace: str, *, read_only: bool = False) -> None:
        self.client = client
        self.table = Table(client, namespace)
        self._read_only = read_only
        self._time = Clock()
        self._writer = ChangeWriter(self.table, lambda: self._time.read())  # noqa: PLW0108 - tests set another
        self._reader = TableReads(self.table, self._now)
        _backends.add(self)

    def forget_threads(self) -> None:
        """Make new locks in the child of an os.fork: the threads that held them are in the parent."""
        self._time.forget_threads()
        self._writer.forget_threads()

    def _set_clock(self, clock: Callable[[], float]) -> None:
        self._time = Clock(clock, None)

    _clock = property(None, _set_clock)  # for tests: every reading of it is believed

    def _now(self) -> float:
        """Tell the time that decides what has expired. It never runs backwards, nor faster than time passes."""
        return self._time.now()

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        with corrupt_if_damaged(request.session_id):
            return await self._writer.apply(request, deadline)

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        place = QueuePlace(self.table, request.session_id, deadline)
        async with place.held():
            return await self._lease(request, place, deadline)

    async def _lease(self, request: LeaseRequest, place: QueuePlace, deadline: float) -> LeaseOutcome:
        pk = self.table.key_of(request.session_id)
        stored = await self.table.head(request.session_id, deadline)
        while True:
            now, lives_from = self._time.read()
            living = stored.living(now) if stored else None
            head = stored.head if stored else Head(request.session_id)
            outcome, row = change_lease(request, head.lease, living.life if living else "", now, lives_from)
            if row is None:
                return outcome
            if place.is_held_up(stored):
                stored = await place.next_head(stored)
                continue
            leased = StoredHead(urandom(12), msgspec.structs.replace(head, lease=row))
            purge_at = None if head.life else max(now, row.until) + TOMBSTONE
            move = place.move(stored)
            write = self.table.move_head(head_item(pk, leased, purge_at), stored, move.place)
            try:
                await self.table.write_together([write], deadline)
            except errors.ConditionNotMet as exc:
                stored = await place.next_head(read_head(request.session_id, exc.items[0]))
            else:
                place.written(move)
                self._writer.heads.put(pk, msgspec.structs.replace(leased, waiting=move.waiting))
                return outcome

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        stored = await self.table.head(session_id, deadline)
        now = self._now()
        living = stored.living(now) if stored else None
        return reading_of(stored.head.lease if stored else None, living.life if living else "", now)

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        with corrupt_if_damaged(session_id):
            return await self._reader.effects(session_id, deadline)

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        with corrupt_if_damaged(query.session_id):
            return await self._reader.read(query, take, deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        with corrupt_if_damaged(session_id):
            return await self._reader.changes(session_id, limit, deadline)

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        return await listing.sessions(self.table, prefix, limit, page, order, self._now(), deadline, where)

    async def find(
        self,
        text: str,  # noqa: ARG002 - `take` looks closer
        session_id: str | None,
        take: Callable[[str, EntryRow], bool],
        deadline: float,
    ) -> None:
        with corrupt_if_damaged(session_id or ""):
            await listing.find(self.table, session_id, take, self._now(), deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        with corrupt_if_damaged(request.source):
            return await fork_session.fork(self.table, self._writer, request, self._time.read(), deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float, *, version: int | None = None) -> Erasure:
        self._writer.heads.drop(self.table.key_of(session_id))
        return await erasure.erase(self.table, session_id, life, version, self._now(), deadline)

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        if session_id is None:
            return await compaction.compact_ended(self.table, self._now(), deadline)
        with corrupt_if_damaged(session_id):
            return await compaction.compact(self.table, session_id, self._now(), deadline, drop_undo=drop_undo)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return 0, await verify.verify_strays(self.table, deadline)
        try:
            log = await self._reader.log_of(session_id, deadline)
        except CorruptEntry as exc:
            return 0, [Problem(session_id, None, str(exc))]
        if log is None:
            return 0, []
        count, problems = await verify.verify_session(log)
        if problems:
            await self._check_unchanged(log, deadline)
        return count, problems

    async def surviving_sessions(self, deadline: float) -> list[str]:
        """Return the ids of all sessions that have a name, whatever their heads are like."""
        return [sk_of(item) for item in await self.table.all(names_key(self.table.namespace), None, None, deadline)]

    async def _check_unchanged(self, log: LogReader, deadline: float) -> None:
        """Raise a fault that passes if the session changed while it was examined: then the problems may be none."""
        now = await self.table.head(log.head.session_id, deadline)
        if now is None or now.head != log.head:
            raise gone(self.client.name)

    # --- copies ------------------------------------------------------------------------------------------------------

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        with corrupt_if_damaged(session_id):
            while True:
                log = await self._reader.log_of(session_id, deadline)
                if log is None:
                    return None
                found = await transfer.outline(log, self._now())
                again = await self.table.head(session_id, deadline)
                # Snapshots and effects were read after the head: they are of its moment if none changed since.
                if again is not None and again.head.has_marks_of(log.head):
                    return found

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        with corrupt_if_damaged(request.session_id):
            log = await self._reader.log_of(request.session_id, deadline)
            if log is None or log.head.life != request.life:
                return None
            return await transfer.portion(log, request)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await transfer.stage(self.table, request, self._now(), deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        with corrupt_if_damaged(arrival.outline.session_id):
            return await transfer.restore(self.table, arrival, self._time.read(), deadline)

    # --- the table ---------------------------------------------------------------------------------------------------

    async def health(self, deadline: float) -> Health:
        """Look whether the table can be read and written now. It deletes an item that is not there: nothing changes.

        A store that is opened read-only does not try that: a look at it shows that the table takes reads.
        """
        await self.table.get("health", "health", deadline)
        if self._read_only:
            return Health(reachable=True, writable=True, seconds=0.0)
        try:
            await self.table.write_together([self.table.delete("health", "health")], deadline)
        except MemoryStoreError as exc:
            return Health(reachable=True, writable=False, seconds=0.0, problems=(str(exc),))
        return Health(reachable=True, writable=True, seconds=0.0)

    async def examine(self, deadline: float) -> Examination:
        """Return facts of the table and findings, for `everturn doctor`."""
        return await doctor.examine(self.table, deadline)

    async def close(self) -> None:
        await self.client.close()


_backends: weakref.WeakSet[DynamoDBBackend] = weakref.WeakSet()


def _in_child_process() -> None:
    for backend in _backends:
        backend.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child_process)
