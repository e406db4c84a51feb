"""Group commit: changes that wait at the same time share one transaction, and one sync of the disk.

It decides which thread runs a batch and when, and delivers outcomes; transaction.py runs the batch.

A thread that finds no leader leads: it takes the write lock, then every change that waits by then, runs each in a
savepoint, commits once, and passes the lead on. A lone caller thus pays for no thread and no hand-over. Nobody is told
of a success before the commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import Any

import apsw

from everturn import telemetry
from everturn.backends.sqlite.database import Database
from everturn.backends.sqlite.errors import translation
from everturn.backends.sqlite.transaction import Job, Stage, Work, roll_back, run_batch
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

LARGEST_BATCH = 256
_RUN = (Stage.RUNNING, Stage.DONE)
LEADER_CHECK = 0.05  # seconds after which a waiting thread looks whether there is still a leader


class _ThreadJob(Job, eq=False):
    """A change that a thread waits for. The thread that leads at once need not wait for itself.

    `asleep` is a lock held while it waits, not an Event: an interrupt cannot leave a bare lock in a state between.
    """

    asleep: threading.Lock | None = None

    def wait_for_call(self) -> None:
        self.asleep = threading.Lock()
        self.asleep.acquire()

    def promote(self) -> None:
        self.stage = Stage.LEADING

    def lead_on(self) -> None:
        self.wake()

    def wake(self) -> None:
        if self.asleep is not None and self.asleep.locked():
            self.asleep.release()


def kept_busy(name: str) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(f"{name}: other changes kept it busy until the time-out", outcome="not_written")


class GroupCommit:
    """The queue of changes to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._queue: deque[Job] = deque()
        self._led = False  # whether a thread leads, or has been asked to
        self._leading = threading.Lock()  # held by the leader

    # --- for callers with a change -----------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> bool:
        """Add a job to the queue. True: there is no leader, so the caller must have `lead` called.

        Raises Unsupported if the file cannot be written.
        """
        if self._database.unwritable is not None:
            raise self._database.unwritable
        with self._mutex:
            must_lead, self._led = not self._led, True
            if not must_lead:
                job.wait_for_call()
            self._queue.append(job)
            return must_lead

    def withdraw(self, job: Job) -> bool:
        """Take a job back. False: it is running or done, or its thread was asked to lead; wait for its outcome then."""
        with self._mutex:
            if job.stage is not Stage.WAITING:
                return False
            job.stage = Stage.DONE
            if job in self._queue:
                self._queue.remove(job)
            return True

    def run(self, work: Work, deadline: float) -> Any:
        """Run a change in the calling thread, or have another thread's batch run it; return when it is committed."""
        job = _ThreadJob(work, deadline)
        try:
            self.enqueue(job)
            if job.asleep is None:
                self.lead(job)
            else:
                self._await(job, job.asleep)
        except BaseException as exc:  # interrupted: a job that has not begun must not begin any more
            if not self.withdraw(job):
                self._fail(job, exc)
            raise
        if job.error is not None:
            raise job.error
        return job.result

    def _await(self, job: Job, asleep: threading.Lock) -> None:
        since = time.monotonic()
        while not asleep.acquire(timeout=min(LEADER_CHECK, max(0.0, job.deadline - time.monotonic()))):
            since = self._database.tell_wait(since)
            if time.monotonic() >= job.deadline and self.withdraw(job):
                job.error = kept_busy(self._database.name)
                return
            if not self._leading.locked():
                # No leader. Most likely one is on its way; but it may have been interrupted, and to lead when there is
                # nothing to do does no harm.
                self.lead(job)
            if job.stage is Stage.DONE:
                return
        if job.stage is Stage.LEADING:
            self.lead(job)

    # --- for callers that only read ----------------------------------------------------------------------------------

    def look(self, work: Work, deadline: float) -> Any:
        """Run a short read on the connection that writes, in a transaction, and return its result. None: it was not
        run, as there is a leader.

        This connection has its own latest pages in its cache. Any other reads the file again after each change.
        """
        with self._mutex:
            if self._led or self._leading.locked():  # a leader holds the lock for a moment longer
                return None
            self._led = True  # changes that arrive meanwhile wait
        with self._leading:
            try:
                db = self._database.borrow_writer(deadline)
                try:
                    if db.in_transaction:
                        roll_back(db)  # a transaction that an interrupt left open
                    db.execute("BEGIN")
                    result = work(db)
                    db.execute("COMMIT")
                except BaseException:
                    self._database.close_writer()  # the traceback may hold a statement, and that an old snapshot
                    raise
                else:
                    return result
                finally:
                    self._database.return_writer()
            except (apsw.Error, OSError) as exc:
                raise translation(exc, self._database.name)  # noqa: B904 - with its cause
            finally:  # as a leader does, and before anybody else can lead
                self._settle()
                if self._led:
                    self._pass_on()

    # --- for the leader ----------------------------------------------------------------------------------------------

    def lead(self, own: Job | None = None) -> None:
        """Run one batch of the waiting jobs, and pass the lead on. An error of a job is stored in it, never raised.

        `own` is the job of the calling thread. An interrupt (Ctrl-C in the main thread, an exception of a signal
        handler) is raised to that thread's caller, whichever job was running. It may come between any two instructions.
        Hence jobs stay in the queue until they are settled, the next leader settles jobs that were left behind, and
        waiting threads check that there is a leader.
        """
        with self._leading:
            first = self._first()
            if first is None:
                return
            try:
                db = self._database.borrow_writer(first.deadline)
                try:
                    if db.in_transaction:
                        roll_back(db)  # a transaction that an interrupt left open
                    db.execute("BEGIN IMMEDIATE")  # a deferred BEGIN upgrades mid-way, and can deadlock
                    batch = self._claim()
                    run_batch(db, self._database.name, batch)
                    telemetry.record(telemetry.COMMIT_SIZE, "sqlite", len(batch))
                finally:
                    if db.in_transaction:
                        roll_back(db)
                    self._database.return_writer()
            except BaseException as exc:
                interrupted = is_interruption(exc)
                if first is own or not interrupted:
                    # The lock was not free within the first job's time; the next job may have more time.
                    self._fail(first, translation(exc, self._database.name))
                if interrupted:
                    raise
            finally:
                self._settle()
                if self._led:  # a new leader may have come since: to ask again does no harm
                    self._pass_on()

    def _first(self) -> Job | None:
        """Find the job whose deadline bounds the wait for the lock. None: all were withdrawn, so nobody need lead."""
        while True:
            with self._mutex:
                first = self._queue[0] if self._queue else None
                self._led = first is not None
                if first is None or first.stage not in _RUN:
                    return first
            self._settle()  # jobs that an interrupt left behind

    def _claim(self) -> list[Job]:
        # Only now, with the write lock held: jobs that arrived during the wait are in, and withdrawn ones are out.
        with self._mutex:
            batch = []
            for job in islice(self._queue, LARGEST_BATCH):
                if job.stage is not Stage.DONE:
                    job.stage = Stage.RUNNING
                    batch.append(job)
            return batch

    def _fail(self, job: Job, error: BaseException) -> None:
        """End a job that still waits with an error."""
        with self._mutex:
            if job.stage not in _RUN:
                job.error = error
                job.stage = Stage.DONE

    def _settle(self) -> None:
        """Take finished jobs out of the queue, and wake the threads and tasks that wait for them."""
        with self._mutex:
            settled: list[Job] = []
            while self._queue and self._queue[0].stage in _RUN:
                settled.append(self._queue.popleft())
            self._led = bool(self._queue)
        for job in settled:
            if job.stage is Stage.RUNNING:  # interrupted between the commit and its answer
                job.error = MemoryStoreBackendError("interrupted", outcome="unknown", transient=True)
                job.stage = Stage.DONE
            job.wake()

    def _pass_on(self) -> None:
        """Have the thread of the next job lead."""
        with self._mutex:
            following = self._queue[0] if self._queue else None
            self._led = following is not None
            if following is not None:
                following.promote()
        if following is not None:
            following.lead_on()

    def forget(self) -> None:
        """Empty the queue in the child of an os.fork: the threads whose changes wait in it are in the parent."""
        self._mutex = threading.Lock()
        self._leading = threading.Lock()
        self._queue.clear()
        self._led = False
