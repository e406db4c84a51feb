"""SQLite as a Backend: every operation of the protocol as one piece of work on a connection.

What the work does is in the modules beside this one; who runs it is up to a subclass: the calling thread (here), or
threads of our own while an event loop goes on (async_backend.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from everturn.backend import ChangeOutcome, ChangeRequest, Erasure, ForkRequest, Order, Query, Reading, Take
from everturn.backends._shared.server_warnings import Examination
from everturn.backends._shared.verification import SURPRISES, unreadable_session, unreadable_store
from everturn.backends.sqlite import apply_change as changes
from everturn.backends.sqlite import (
    compaction,
    fork_session,
    listing,
    maintenance,
    page_checksums,
    reads,
    transfer,
    verify,
)
from everturn.backends.sqlite.clock import Clock
from everturn.backends.sqlite.connections import Connection, Database
from everturn.backends.sqlite.errors import Damaged, translated
from everturn.backends.sqlite.group_commit import GroupCommit
from everturn.core.codec import EntryRow
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry, MemoryStoreBackendError, MemoryStoreError
from everturn.model import Change, Compaction, ErasureReceipt, Page, Problem
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

T = TypeVar("T")
Work = Callable[[Connection], T]

REAP_EVERY = 64  # commits; each reaping step is bounded, so that writers pay for expired sessions in small coin


class SqliteOperations(ABC):
    """The protocol's operations. A subclass says how a piece of work is run and waited for."""

    def __init__(self, database: Database, clock: Callable[[], float] | None = None) -> None:
        self._database = database
        self._commits = GroupCommit(database)
        self._time = Clock() if clock is None else Clock(clock, None)
        self._until_reaping = REAP_EVERY
        database.in_child += [self._commits.forget, self._forget_threads]

    def _set_clock(self, clock: Callable[[], float]) -> None:
        """Take the time from this clock, and believe it."""
        self._time = Clock(clock, None)

    _clock = property(fset=_set_clock)  # tests move time by it

    def _forget_threads(self) -> None:
        self._time.forget_threads()

    def _now(self, db: Connection) -> float:
        """The time to judge by. The connection is told from when the life of what it writes is counted."""
        now, db.lives_from = self._time.read()
        return now

    @abstractmethod
    async def _write(self, work: Work[T], deadline: float) -> T:
        """Run the work in a write transaction; return when it is committed."""

    @abstractmethod
    async def _read(self, work: Work[T], deadline: float) -> T:
        """Run the work in a read transaction."""

    async def _glance(self, work: Work[T], deadline: float) -> T:
        """Run work that is one short statement, and so needs no transaction around it."""
        return await self._read(work, deadline)

    @abstractmethod
    async def _outside(self, work: Work[T], deadline: float) -> T:
        """Run the work on a connection with no transaction open."""

    def _run_read(self, work: Work[T], deadline: float) -> T:
        with translated(self._database.name), self._database.reader(deadline) as db:
            return work(db)

    @abstractmethod
    async def _apart(self, work: Work[T], deadline: float) -> T:
        """Run the work on a connection that is closed afterwards: it may look past damaged pages."""

    def _run_apart(self, work: Work[T], deadline: float) -> T:
        if not self._database.path:
            return self._run_read(work, deadline)
        with translated(self._database.name), self._database.alone(deadline) as db:
            return work(db)

    def _run_outside(self, work: Work[T], deadline: float) -> T:
        with translated(self._database.name), self._database.spare(deadline) as db:
            return work(db)

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        work = named(request.session_id, lambda db: changes.apply(db, request, self._now(db)))
        outcome = await self._write(work, deadline)
        self._until_reaping -= 1
        if self._until_reaping <= 0:
            self._until_reaping = REAP_EVERY
            await self._reap_quietly(deadline)
        return outcome

    async def _reap_quietly(self, deadline: float) -> None:
        try:
            await self._write(lambda db: maintenance.reap(db, self._now(db)), deadline)
        except MemoryStoreError:
            pass  # the change itself is kept; the next writer tries again

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        how = self._apart if query.skip else self._glance if query.is_glance else self._read
        work = named(query.session_id, lambda db: reads.read(db, query, take, self._now(db)))
        return await self._explained(query.session_id, how, work, deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        work = named(session_id, lambda db: reads.changes(db, session_id, limit, self._now(db)))
        return await self._explained(session_id, self._read, work, deadline)

    async def sessions(self, prefix: str, limit: int, page: str | None, order: Order, deadline: float) -> Page:
        work = named(None, lambda db: listing.sessions(db, prefix, limit, page, order, self._now(db)))
        try:
            return await self._read(work, deadline)
        except Damaged as exc:
            raise unreadable_store(self._database.name, exc) from exc

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        work = named(session_id, lambda db: listing.find(db, text, session_id, take, self._now(db)))
        if session_id is None:
            await self._read(work, deadline)
        else:
            await self._explained(session_id, self._read, work, deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        return await self._write(
            named(request.source, lambda db: fork_session.fork(db, request, self._now(db))), deadline
        )

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        work = named(session_id, lambda db: transfer.outline(db, session_id, self._now(db)))
        return await self._explained(session_id, self._read, work, deadline)

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        work = named(request.session_id, lambda db: transfer.portion(db, request, self._now(db)))
        return await self._explained(request.session_id, self._read, work, deadline)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await self._write(lambda db: transfer.stage(db, request, self._now(db)), deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        return await self._write(lambda db: transfer.restore(db, arrival, self._now(db)), deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        removed = await self._write(lambda db: maintenance.erase(db, session_id, life, self._now(db)), deadline)
        complete = False
        with suppress(MemoryStoreBackendError):  # nobody can read the session any more; the rest is told by `complete`
            while removed.left and time.monotonic() < deadline:
                removed = removed.plus(await self._write(partial(maintenance.remove, lives=removed.left), deadline))
            complete = not removed.left and await self._outside(maintenance.scrub, deadline)
        receipt = ErasureReceipt(session_id, removed.entries, removed.snapshots, removed.bytes, complete)
        return Erasure(receipt, removed.spared)

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        if session_id is not None:
            if drop_undo:  # before the plan: what only they could reach is then planned to go
                dropping = named(session_id, lambda db: compaction.drop_undo_steps(db, session_id, self._now(db)))
                await self._write(dropping, deadline)
            return await self._compact(session_id, deadline)
        total, until = Compaction(0, 0, 0), _half_way_to(deadline)
        while time.monotonic() < until:
            reaped = await self._write(lambda db: maintenance.reap(db, self._now(db)), deadline)
            if not reaped.sessions and not await self._write(maintenance.give_back_pages, deadline):
                break
            total = Compaction(1, total.entries + reaped.entries, total.bytes + reaped.bytes)
        return total

    async def _compact(self, session_id: str, deadline: float) -> Compaction:
        """Plan, and carry the plan out until it is done or the time has come. One plan for many steps."""
        total, at = Compaction(0, 0, 0), 0
        planning = named(session_id, lambda db: compaction.plan(db, session_id, self._now(db)))
        plan = await self._read(planning, deadline)
        until = _half_way_to(deadline)
        while plan is not None and at < len(plan.chores):
            step = await self._write(partial(compaction.step, planned=plan, at=at), deadline)
            at = step.following
            sessions = 1 if step.has_changed else total.sessions
            total = Compaction(sessions, total.entries + step.entries, total.bytes + step.bytes)
            if time.monotonic() >= until:
                break
            if step.is_stale:
                plan = await self._read(planning, deadline)
                at = 0
        return total

    async def examine(self, deadline: float) -> Examination:
        """All that `doctor` tells of the file."""
        with translated(self._database.name):  # it may be that no file can be opened
            from everturn.backends.sqlite import doctor  # few ask for it

        return await self._outside(lambda db: doctor.examine(db, self._database.path), deadline)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return 0, await self._apart(lambda db: verify.verify_file(db, self._database.path), deadline)
        work = named(session_id, lambda db: verify.verify_session(db, session_id, self._now(db)))
        try:
            return await self._read(work, deadline)
        except (Damaged, CorruptEntry) as exc:
            entries, problems = await self._second_look(session_id, deadline)
            return entries, [Problem(session_id, None, str(exc)), *problems]

    async def _second_look(self, session_id: str, deadline: float) -> tuple[int, list[Problem]]:
        """Verify a session on pages that are damaged: its entries have checksums of their own."""

        def look(db: Connection) -> tuple[int, list[Problem]]:
            page_checksums.look_past_damage(db)
            return verify.verify_session(db, session_id, self._now(db))

        try:
            return await self._apart(named(session_id, look), deadline)
        except (Damaged, CorruptEntry):
            return 0, []  # too damaged for that

    async def _explained(
        self, session_id: str, how: Callable[[Work[T], float], Awaitable[T]], work: Work[T], deadline: float
    ) -> T:
        """Run a read of one session; if it meets a damaged page, say which entry is damaged, or else which page."""
        try:
            return await how(work, deadline)
        except Damaged as exc:
            damage = exc
        _, problems = await self._second_look(session_id, deadline)
        entry = next((problem for problem in problems if problem.seq), None)
        if entry is not None and entry.seq is not None:
            told = f"session {session_id!r}, entry {entry.seq}: "
            text = f"{told}{entry.what.removeprefix(told)} ({damage})"
            raise CorruptEntry(text, session_id=session_id, seq=entry.seq) from damage
        raise CorruptEntry(f"session {session_id!r}: {damage}", session_id=session_id, seq=0) from damage

    async def surviving_sessions(self, deadline: float) -> list[str]:
        """The names of all sessions that can be found in a file whose sessions cannot be listed."""
        return await self._apart(verify.names, deadline)


def named(session_id: str | None, work: Work[T]) -> Work[T]:
    """The work, with a CorruptEntry in place of whatever is raised by a value that was never written."""

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


def _half_way_to(deadline: float) -> float:
    """When to stop work that can be gone on with: the rest of the time is for a step that waits for others."""
    return (time.monotonic() + deadline) / 2


class SqliteBackend(SqliteOperations):
    """Runs everything in the calling thread; its coroutines never suspend. Safe to share between threads."""

    async def _write(self, work: Work[T], deadline: float) -> T:
        result: T = self._commits.run(work, deadline)
        return result

    async def _read(self, work: Work[T], deadline: float) -> T:
        return self._run_read(work, deadline)

    async def _glance(self, work: Work[T], deadline: float) -> T:
        seen: T | None = self._commits.look(work, deadline)
        return self._run_read(work, deadline) if seen is None else seen

    async def _apart(self, work: Work[T], deadline: float) -> T:
        return self._run_apart(work, deadline)

    async def _outside(self, work: Work[T], deadline: float) -> T:
        return self._run_outside(work, deadline)

    async def close(self) -> None:
        self._database.close()
