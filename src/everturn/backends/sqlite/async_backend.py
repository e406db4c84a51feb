"""SQLite for an event loop: one thread writes, a few read. The loop never waits for a lock, nor for a sync.

Short reads run in the loop's own thread while the disk is quick (decision 031).

The operations are in backend.py. This file is about threads, the loop and cancellation.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

import apsw

from everturn.backends._shared.deadline_watch import DeadlineWatch
from everturn.backends.sqlite.backend import SqliteOperations, Work
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.database import Database
from everturn.backends.sqlite.group_commit import kept_busy
from everturn.backends.sqlite.transaction import Job
from everturn.errors import MemoryStoreBackendError

T = TypeVar("T")
READERS = 4
SLOW = 0.002  # seconds: a short read that takes longer waited for the disk, and the next one is left to a thread
CLOSE_TIMEOUT = 60.0  # seconds that close waits for changes under way, each of which has a time-out of its own


class _AsyncJob(Job, eq=False, kw_only=True):
    """A change that a task waits for. `waiter` is None once the outcome has been delivered to the loop."""

    backend: AsyncSqliteBackend
    waiter: asyncio.Future[None] | None

    def wait_for_call(self) -> None:
        pass

    def promote(self) -> None:
        pass  # the writer thread leads for every job; so this one can still be withdrawn

    def lead_on(self) -> None:
        self.backend.want_lead()

    def wake(self) -> None:
        self.backend.settle(self)


class AsyncSqliteBackend(SqliteOperations):
    """Runs every operation in threads of its own. Belongs to the event loop it was opened in."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.loop = asyncio.get_running_loop()
        self._watch = DeadlineWatch(self._expire)
        self._settled: deque[_AsyncJob] = deque()
        self._loop_called = False
        self._closed = False
        self._reads_are_quick = True
        self._start_threads()
        database.in_child.append(self._start_threads)  # an os.fork copies no threads

    def _start_threads(self) -> None:
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="everturn-read")
        # One item for each request to lead. Not a semaphore: Python's costs a lone task's append some 20 us more.
        self._lead_wanted: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._writer = threading.Thread(target=self._lead_when_wanted, name="everturn-write", daemon=True)
        self._writer.start()

    # --- in the loop -------------------------------------------------------------------------------------------------

    async def _write(self, work: Work[T], deadline: float) -> T:
        self._refuse_if_closed()
        waiter: asyncio.Future[None] = self.loop.create_future()
        job = _AsyncJob(work, deadline, backend=self, waiter=waiter)
        self._watch.add(job, deadline)
        try:
            if self._commits.enqueue(job):
                self.want_lead()  # last: the writer thread can have the interpreter when this one waits
            await waiter
        except asyncio.CancelledError:
            if not self._commits.withdraw(job):
                await self._outcome_of(job)  # it has begun: nothing may be written after the caller has been told
            raise
        finally:
            self._watch.remove(job)
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    async def _outcome_of(self, job: _AsyncJob) -> None:
        while job.waiter is not None:
            job.waiter = self.loop.create_future()
            with suppress(asyncio.CancelledError):  # cancelled again: it still has to wait
                await job.waiter

    def _expire(self, job: _AsyncJob) -> None:
        if self._commits.withdraw(job):
            job.error = kept_busy(self._database.name)
            self._deliver(job)

    def _deliver_all(self) -> None:
        self._loop_called = False
        while self._settled:
            self._deliver(self._settled.popleft())

    def _deliver(self, job: _AsyncJob) -> None:
        waiter, job.waiter = job.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _read(self, work: Work[T], deadline: float) -> T:
        self._refuse_if_closed()
        return await self.loop.run_in_executor(self._readers, self._run_read, work, deadline)

    async def _read_shortly(self, work: Work[T], deadline: float) -> T:
        """Run a short read in the loop's own thread, unless the latest one was slow: the way to a thread and back takes
        longer than the read (decision 031). If it would have to wait for a lock, it goes to a thread after all."""
        self._refuse_if_closed()
        if self._reads_are_quick and self._database.path:
            try:
                return self._run_shortly(self._timed(work, may_wait=False), deadline)
            except MemoryStoreBackendError as exc:
                if not isinstance(exc.__cause__, apsw.BusyError):
                    raise
        return await self.loop.run_in_executor(self._readers, self._run_read, self._timed(work), deadline)

    def _timed(self, work: Work[T], *, may_wait: bool = True) -> Work[T]:
        """Wrap work: note whether it was quick."""

        def run(db: Connection) -> T:
            begun = time.monotonic()
            db.patience.may_wait = may_wait
            try:
                return work(db)
            finally:
                db.patience.may_wait = True
                self._reads_are_quick = time.monotonic() - begun < SLOW

        return run

    async def _read_disposable(self, work: Work[T], deadline: float) -> T:
        self._refuse_if_closed()
        return await self.loop.run_in_executor(self._readers, self._run_disposable, work, deadline)

    async def _outside_transaction(self, work: Work[T], deadline: float) -> T:
        self._refuse_if_closed()
        return await self.loop.run_in_executor(self._readers, self._run_outside_transaction, work, deadline)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise self._database.closed_error()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.shield(self.loop.run_in_executor(None, self._close))
            self._watch.close()

    # --- in threads of our own ---------------------------------------------------------------------------------------

    def _lead_when_wanted(self) -> None:
        while True:
            self._lead_wanted.get()
            if self._stopping:
                return
            self._commits.lead()

    def want_lead(self) -> None:
        """Have the writer thread run a batch."""
        self._lead_wanted.put(None)

    def settle(self, job: _AsyncJob) -> None:
        """Deliver a finished job to the loop: one call into the loop for a whole batch."""
        self._settled.append(job)
        if not self._loop_called:
            self._loop_called = True
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                self.loop.call_soon_threadsafe(self._deliver_all)

    def _close(self) -> None:
        with suppress(MemoryStoreBackendError):
            self._commits.run(
                lambda _: None, time.monotonic() + CLOSE_TIMEOUT
            )  # last in the queue: then all others are done
        self._database.close()
        self._stopping = True
        self._lead_wanted.put(None)
        self._writer.join()
        self._readers.shutdown()
