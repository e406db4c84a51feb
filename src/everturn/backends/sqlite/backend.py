"""SQLite as a Backend: every operation of the protocol as one piece of work on a connection.

What the work does is in the modules beside this one; who runs it is up to a subclass: the calling thread (here), or
threads of our own while an event loop goes on (background.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from everturn.backend import ChangeOutcome, ChangeRequest, Erasure, ForkRequest, Order, Query, Reading, Take
from everturn.backends.findings import Examination
from everturn.backends.sqlite import changes, compaction, forks, listing, moves, reads, upkeep, verify
from everturn.backends.sqlite.commit import GroupCommit
from everturn.backends.sqlite.connections import Connection, Database
from everturn.backends.sqlite.errors import translated
from everturn.codec import EntryRow
from everturn.dossier import Outline, Portion
from everturn.errors import MemoryStoreBackendError, MemoryStoreError
from everturn.model import Change, Compaction, ErasureReceipt, Page, Problem
from everturn.portable import Arrival, PortionRequest, Staging

T = TypeVar("T")
Work = Callable[[Connection], T]

REAP_EVERY = 64  # commits; each reaping step is bounded, so that writers pay for expired sessions in small coin


class Operations(ABC):
    """The protocol's operations. A subclass says how a piece of work is run and waited for."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._commits = GroupCommit(database)
        self._clock = clock
        self._latest = 0.0
        self._until_reaping = REAP_EVERY
        database.in_child.append(self._commits.forget)

    def _now(self) -> float:
        """The time, which never runs backwards here: what has expired stays so, whatever is done to the clock."""
        self._latest = max(self._latest, self._clock())
        return self._latest

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

    def _run_outside(self, work: Work[T], deadline: float) -> T:
        with translated(self._database.name), self._database.spare(deadline) as db:
            return work(db)

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        outcome = await self._write(lambda db: changes.apply(db, request, self._now()), deadline)
        self._until_reaping -= 1
        if self._until_reaping <= 0:
            self._until_reaping = REAP_EVERY
            await self._reap_quietly(deadline)
        return outcome

    async def _reap_quietly(self, deadline: float) -> None:
        try:
            await self._write(lambda db: upkeep.reap(db, self._now()), deadline)
        except MemoryStoreError:
            pass  # the change itself is kept; the next writer tries again

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        how = self._glance if query.is_glance else self._read
        return await how(lambda db: reads.read(db, query, take, self._now()), deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        return await self._read(lambda db: reads.changes(db, session_id, limit, self._now()), deadline)

    async def sessions(self, prefix: str, limit: int, page: str | None, order: Order, deadline: float) -> Page:
        return await self._read(lambda db: listing.sessions(db, prefix, limit, page, order, self._now()), deadline)

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        await self._read(lambda db: listing.find(db, text, session_id, take, self._now()), deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        return await self._write(lambda db: forks.fork(db, request, self._now()), deadline)

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        return await self._read(lambda db: moves.outline(db, session_id, self._now()), deadline)

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        return await self._read(lambda db: moves.portion(db, request, self._now()), deadline)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await self._write(lambda db: moves.stage(db, request, self._now()), deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        return await self._write(lambda db: moves.restore(db, arrival, self._now()), deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        removed = await self._write(lambda db: upkeep.erase(db, session_id, life, self._now()), deadline)
        complete = False
        with suppress(MemoryStoreBackendError):  # nobody can read the session any more; the rest is told by `complete`
            while removed.left and time.monotonic() < deadline:
                removed = removed.plus(await self._write(partial(upkeep.remove, lives=removed.left), deadline))
            complete = not removed.left and await self._outside(upkeep.scrub, deadline)
        receipt = ErasureReceipt(session_id, removed.entries, removed.snapshots, removed.bytes, complete)
        return Erasure(receipt, removed.spared)

    async def compact(self, session_id: str | None, deadline: float) -> Compaction:
        if session_id is not None:
            return await self._compact(session_id, deadline)
        total, until = Compaction(0, 0, 0), _half_way_to(deadline)
        while time.monotonic() < until:
            reaped = await self._write(lambda db: upkeep.reap(db, self._now()), deadline)
            if not reaped.sessions and not await self._write(upkeep.give_back_pages, deadline):
                break
            total = Compaction(1, total.entries + reaped.entries, total.bytes + reaped.bytes)
        return total

    async def _compact(self, session_id: str, deadline: float) -> Compaction:
        """Plan, and carry the plan out until it is done or the time has come. One plan for many steps."""
        total, at = Compaction(0, 0, 0), 0
        plan = await self._read(lambda db: compaction.plan(db, session_id, self._now()), deadline)
        until = _half_way_to(deadline)
        while plan is not None and at < len(plan.chores):
            step = await self._write(partial(compaction.step, planned=plan, at=at), deadline)
            at = step.following
            sessions = 1 if step.has_changed else total.sessions
            total = Compaction(sessions, total.entries + step.entries, total.bytes + step.bytes)
            if time.monotonic() >= until:
                break
            if step.is_stale:
                plan = await self._read(lambda db: compaction.plan(db, session_id, self._now()), deadline)
                at = 0
        return total

    async def examine(self, deadline: float) -> Examination:
        """All that `doctor` tells of the file."""
        from everturn.backends.sqlite import checks  # few ask for it

        return await self._outside(lambda db: checks.examine(db, self._database.path), deadline)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return await self._read(verify.verify_file, deadline)
        return await self._read(lambda db: verify.verify_session(db, session_id, self._now()), deadline)


def _half_way_to(deadline: float) -> float:
    """When to stop work that can be gone on with: the rest of the time is for a step that waits for others."""
    return (time.monotonic() + deadline) / 2


class SqliteBackend(Operations):
    """Runs everything in the calling thread; its coroutines never suspend. Safe to share between threads."""

    async def _write(self, work: Work[T], deadline: float) -> T:
        result: T = self._commits.run(work, deadline)
        return result

    async def _read(self, work: Work[T], deadline: float) -> T:
        return self._run_read(work, deadline)

    async def _glance(self, work: Work[T], deadline: float) -> T:
        seen: T | None = self._commits.look(work, deadline)
        return self._run_read(work, deadline) if seen is None else seen

    async def _outside(self, work: Work[T], deadline: float) -> T:
        return self._run_outside(work, deadline)

    async def close(self) -> None:
        self._database.close()
