"""SQLite as a Backend: each operation of the protocol is a function that is run on a connection.

These functions are in the modules beside this one. A subclass decides which thread runs them: the calling thread
(here), or threads of our own while an event loop goes on (async_backend.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from everturn import events
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
)
from everturn.backends._shared.server_warnings import Examination
from everturn.backends._shared.steady_clock import Clock
from everturn.backends._shared.verification import SURPRISES, unreadable_session, unreadable_store
from everturn.backends.sqlite import (
    compaction,
    effects,
    fork_session,
    health,
    leases,
    listing,
    maintenance,
    page_checksums,
    reads,
    transfer,
    verify,
)
from everturn.backends.sqlite.apply_change import apply_change
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.database import Database
from everturn.backends.sqlite.errors import BAD_CHECKSUM, DamagedFile, translated
from everturn.backends.sqlite.group_commit import GroupCommit
from everturn.core.codec import EntryRow
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry, MemoryStoreBackendError, MemoryStoreError
from everturn.model import Change, Compaction, ErasureReceipt, Page, Problem
from everturn.model.health import Health
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

T = TypeVar("T")
Work = Callable[[Connection], T]

SHORT = 128  # messages: to read so many takes less than a millisecond
LEASES_AT_ONCE = 500  # removed by one transaction
REAP_EVERY = 64  # commits between two steps of removing expired sessions; each step is short


class SqliteOperations(ABC):
    """The operations of the protocol. A subclass runs their work and waits for it."""

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        self._database = database
        self._commits = GroupCommit(database)
        self._time = Clock() if clock is None else Clock(clock, None)
        self._until_reaping = REAP_EVERY
        database.in_child += [self._commits.forget, self._forget_threads]

    def _set_clock(self, clock: Callable[[], float]) -> None:
        """Take the time from this clock, whatever it says."""
        self._time = Clock(clock, None)

    _clock = property(fset=_set_clock)  # tests move time by it

    def _forget_threads(self) -> None:
        self._time.forget_threads()

    def _now(self, db: Connection) -> float:
        """Read the time that decides what has expired, and tell the connection from when a TTL counts."""
        now, db.lives_from = self._time.read()
        return now

    @abstractmethod
    async def _write(self, work: Work[T], deadline: float) -> T:
        """Run the work in a write transaction; return when it is committed."""

    @abstractmethod
    async def _read(self, work: Work[T], deadline: float) -> T:
        """Run the work in a read transaction."""

    @abstractmethod
    async def _read_shortly(self, work: Work[T], deadline: float) -> T:
        """Run work that takes some microseconds in a read transaction, on the connection that writes if it is free."""

    @abstractmethod
    async def _outside_transaction(self, work: Work[T], deadline: float) -> T:
        """Run the work on a connection with no transaction open."""

    def _run_shortly(self, work: Work[T], deadline: float) -> T:
        seen: T | None = None if self._database.read_only else self._commits.look(work, deadline)
        return self._run_read(work, deadline) if seen is None else seen

    def _run_read(self, work: Work[T], deadline: float) -> T:
        with translated(self._database.name), self._database.reader(deadline) as db:
            return work(db)

    @abstractmethod
    async def _read_disposable(self, work: Work[T], deadline: float) -> T:
        """Run the work on a connection that is closed afterwards: it may look past damaged pages."""

    def _run_disposable(self, work: Work[T], deadline: float) -> T:
        if not self._database.path:
            return self._run_read(work, deadline)
        with translated(self._database.name), self._database.disposable_reader(deadline) as db:
            return work(db)

    def _run_outside_transaction(self, work: Work[T], deadline: float) -> T:
        with translated(self._database.name), self._database.idle_connection(deadline) as db:
            return work(db)

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        work = raising_corrupt_entry(request.session_id, lambda db: apply_change(db, request, self._now(db)))
        outcome = await self._write(work, deadline)
        self._until_reaping -= 1
        if self._until_reaping <= 0:
            self._until_reaping = REAP_EVERY
            await self._reap_quietly(deadline)
        return outcome

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        work = raising_corrupt_entry(request.session_id, lambda db: leases.apply_lease(db, request, self._now(db)))
        return await self._write(work, deadline)

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        work = raising_corrupt_entry(session_id, lambda db: leases.held_lease(db, session_id, self._now(db)))
        return await self._naming_damage(session_id, self._read, work, deadline)

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        work = raising_corrupt_entry(session_id, lambda db: effects.read(db, session_id, self._now(db)))
        return await self._naming_damage(session_id, self._read, work, deadline)

    async def _reap_quietly(self, deadline: float) -> None:
        try:
            await self._write(lambda db: maintenance.reap(db, self._now(db)), deadline)
        except MemoryStoreError as exc:  # the change itself is committed; a later writer tries again
            events.tell(events.UPKEEP_FAILED, self._database.source, step="reap", reason=events.reason(exc))

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        how = self._read_disposable if query.skip else self._read_shortly if _is_short(query) else self._read
        work = raising_corrupt_entry(query.session_id, lambda db: reads.read(db, query, take, self._now(db)))
        return await self._naming_damage(query.session_id, how, work, deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        work = raising_corrupt_entry(session_id, lambda db: reads.changes(db, session_id, limit, self._now(db)))
        return await self._naming_damage(session_id, self._read, work, deadline)

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        work = raising_corrupt_entry(
            None, lambda db: listing.sessions(db, prefix, limit, page, order, self._now(db), where)
        )
        try:
            return await self._read(work, deadline)
        except DamagedFile as exc:
            raise unreadable_store(self._database.name, exc) from exc

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        work = raising_corrupt_entry(session_id, lambda db: listing.find(db, text, session_id, take, self._now(db)))
        if session_id is None:
            await self._read(work, deadline)
        else:
            await self._naming_damage(session_id, self._read, work, deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        return await self._write(
            raising_corrupt_entry(request.source, lambda db: fork_session.fork(db, request, self._now(db))), deadline
        )

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        work = raising_corrupt_entry(session_id, lambda db: transfer.outline(db, session_id, self._now(db)))
        return await self._naming_damage(session_id, self._read, work, deadline)

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        work = raising_corrupt_entry(request.session_id, lambda db: transfer.portion(db, request, self._now(db)))
        return await self._naming_damage(request.session_id, self._read, work, deadline)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await self._write(lambda db: transfer.stage(db, request, self._now(db)), deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        return await self._write(lambda db: transfer.restore(db, arrival, self._now(db)), deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float, *, version: int | None = None) -> Erasure:
        erasure = await self.remove_session(session_id, life, deadline, version=version)
        receipt = erasure.receipt
        complete = False
        with suppress(MemoryStoreBackendError):  # the session is gone for every reader; `complete` tells of its bytes
            complete = receipt.complete and await self.scrub(deadline)
        return Erasure(msgspec.structs.replace(receipt, complete=complete), erasure.spared)

    async def remove_session(
        self, session_id: str, life: str | None, deadline: float, *, version: int | None = None
    ) -> Erasure:
        """Erase a session. The last copies of its bytes stay until `scrub` removes them, once for any number of
        sessions."""
        erasing = raising_corrupt_entry(
            session_id, lambda db: maintenance.erase(db, session_id, life, self._now(db), version)
        )
        removed = await self._write(erasing, deadline)
        with suppress(MemoryStoreBackendError):
            while removed.left and time.monotonic() < deadline:
                removed = removed.plus(await self._write(partial(maintenance.remove, lives=removed.left), deadline))
        numbers = removed.entries, removed.snapshots, removed.bytes
        return Erasure(ErasureReceipt(session_id, *numbers, not removed.left), removed.spared)

    async def scrub(self, deadline: float) -> bool:
        """Remove the last copies of erased bytes. False: a reader pins them, or there is no room or time for it."""
        is_clean = await self._outside_transaction(maintenance.scrub, deadline)
        if not is_clean:
            why = "a reader holds old pages, the disk has no room for a copy, or the time-out is too short"
            events.tell(events.UPKEEP_FAILED, self._database.source, step="checkpoint", reason=why)
        return is_clean

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        if session_id is not None:
            if drop_undo:  # before planning: entries that only undo could reach are then in the plan
                dropping = raising_corrupt_entry(
                    session_id, lambda db: compaction.drop_undo_steps(db, session_id, self._now(db))
                )
                await self._write(dropping, deadline)
            return await self._compact(session_id, deadline)
        total, until = Compaction(0, 0, 0), _half_way_to(deadline)
        while time.monotonic() < until:
            reaped = await self._write(lambda db: maintenance.reap(db, self._now(db)), deadline)
            idle = await self._write(lambda db: leases.forget_idle(db, self._now(db), LEASES_AT_ONCE), deadline)
            if not reaped.sessions and not idle and not await self._write(maintenance.give_back_pages, deadline):
                break
            total = Compaction(1, total.entries + reaped.entries, total.bytes + reaped.bytes)
        return total

    async def _compact(self, session_id: str, deadline: float) -> Compaction:
        """Plan once, and carry the plan out in short transactions, until it is done or half of the time is over."""
        total, at = Compaction(0, 0, 0), 0
        planning = raising_corrupt_entry(session_id, lambda db: compaction.plan(db, session_id, self._now(db)))
        plan = await self._read(planning, deadline)
        until = _half_way_to(deadline)
        while plan is not None and at < len(plan.chores):
            step = await self._write(partial(self._compaction_step, plan=plan, at=at), deadline)
            at = step.following
            sessions = 1 if step.has_changed else total.sessions
            total = Compaction(sessions, total.entries + step.entries, total.bytes + step.bytes)
            if time.monotonic() >= until:
                break
            if step.is_stale:
                plan = await self._read(planning, deadline)
                at = 0
        return total

    def _compaction_step(self, db: Connection, plan: compaction.CompactionPlan, at: int) -> compaction.StepResult:
        work = raising_corrupt_entry(plan.session_id, lambda db: compaction.step(db, plan, at, self._now(db)))
        return work(db)

    async def examine(self, deadline: float) -> Examination:
        """Collect the facts and findings that `doctor` tells about the file."""
        with translated(self._database.name):  # an import opens a file, and that may fail
            from everturn.backends.sqlite import doctor  # seldom used, and slow to import

        return await self._outside_transaction(lambda db: doctor.examine(db, self._database.path), deadline)

    async def health(self, deadline: float) -> Health:
        """Read, take the write lock for a moment without writing, and look for work that is under way."""
        await self._read(lambda db: db.value("SELECT count(*) FROM sqlite_schema"), deadline)
        refused = damage = None
        work = health.OpenWork()
        try:
            if self._database.read_only:
                refused = health.why_not_writable(self._database.path)
            else:
                await self._write(lambda _: None, deadline)
        except MemoryStoreError as exc:
            refused = str(exc)
        until = min(deadline, time.monotonic() + health.LOOK)
        try:
            work = await self._read(lambda db: health.open_work(db, self._now(db)), until)
        except MemoryStoreError as exc:
            damage = str(exc) if time.monotonic() < until else None
        with translated(self._database.name):
            return health.report(self._database.path, work, refused=refused, damage=damage)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return 0, await self._read_disposable(lambda db: verify.verify_file(db, self._database.path), deadline)
        work = raising_corrupt_entry(session_id, lambda db: verify.verify_session(db, session_id, self._now(db)))
        try:
            return await self._read(work, deadline)
        except (DamagedFile, CorruptEntry) as exc:
            entries, problems = await self._verify_past_damage(session_id, deadline)
            what = f"a page {BAD_CHECKSUM}" if BAD_CHECKSUM in str(exc) else str(exc)
            return entries, [Problem(session_id, None, what), *problems]

    async def _verify_past_damage(self, session_id: str, deadline: float) -> tuple[int, list[Problem]]:
        """Verify a session although its pages are damaged: its entries have checksums of their own."""

        def look(db: Connection) -> tuple[int, list[Problem]]:
            page_checksums.look_past_damage(db)
            return verify.verify_session(db, session_id, self._now(db))

        try:
            return await self._read_disposable(raising_corrupt_entry(session_id, look), deadline)
        except (DamagedFile, CorruptEntry):
            return 0, []  # too damaged for that

    async def _naming_damage(
        self, session_id: str, how: Callable[[Work[T], float], Awaitable[T]], work: Work[T], deadline: float
    ) -> T:
        """Run a read of one session. If it meets a damaged page, raise CorruptEntry for the entry, or the page."""
        try:
            return await how(work, deadline)
        except DamagedFile as exc:
            damage = exc
        _, problems = await self._verify_past_damage(session_id, deadline)
        entry = next((problem for problem in problems if problem.seq), None)
        if entry is not None and entry.seq is not None:
            told = f"session {session_id!r}, entry {entry.seq}: "
            text = f"{told}{entry.what.removeprefix(told)} ({damage})"
            raise CorruptEntry(text, session_id=session_id, seq=entry.seq) from damage
        raise CorruptEntry(f"session {session_id!r}: {damage}", session_id=session_id, seq=0) from damage

    async def surviving_sessions(self, deadline: float) -> list[str]:
        """List the names of all sessions that can be found in a file whose sessions cannot be listed."""
        return await self._read_disposable(verify.names, deadline)


def raising_corrupt_entry(session_id: str | None, work: Work[T]) -> Work[T]:
    """Wrap work: an error that comes from a value we never wrote is raised as CorruptEntry."""

    def run(db: Connection) -> T:
        try:
            return work(db)
        except MemoryStoreError:
            raise
        except SURPRISES as exc:
            if is_interruption(exc):
                raise
            error = unreadable_store(db.filename, exc) if session_id is None else unreadable_session(session_id, exc)
            raise error from exc

    return run


def _is_short(query: Query) -> bool:
    """Whether a query asks for few entries: then a change can wait for it, or an event loop."""
    return query.limit is not None and query.limit <= SHORT and not query.snapshots


def _half_way_to(deadline: float) -> float:
    """Compute when to stop work that can be continued later: the other half is for a step that has to wait."""
    return (time.monotonic() + deadline) / 2


class SqliteBackend(SqliteOperations):
    """Runs every operation in the calling thread; its coroutines never suspend. Safe to share between threads."""

    async def _write(self, work: Work[T], deadline: float) -> T:
        result: T = self._commits.run(work, deadline)
        return result

    async def _read(self, work: Work[T], deadline: float) -> T:
        return self._run_read(work, deadline)

    async def _read_shortly(self, work: Work[T], deadline: float) -> T:
        return self._run_shortly(work, deadline)

    async def _read_disposable(self, work: Work[T], deadline: float) -> T:
        return self._run_disposable(work, deadline)

    async def _outside_transaction(self, work: Work[T], deadline: float) -> T:
        return self._run_outside_transaction(work, deadline)

    async def close(self) -> None:
        self._database.close()
