"""Group commit: changes that wait at the same time share one transaction, and one sync of the disk.

It decides who runs a batch and when, and delivers outcomes; how a batch is run is in transaction.py.

Whoever finds nobody leading leads: it takes the write lock, then everything that waits by then, runs each in a
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

from everturn.backends.sqlite.database import Database
from everturn.backends.sqlite.errors import translation
from everturn.backends.sqlite.transaction import Job, Stage, Work, roll_back, run_batch
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

LARGEST_BATCH = 256
_RUN = (Stage.RUNNING, Stage.DONE)
BEAT = 0.05  # seconds after which whoever waits looks whether somebody leads


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
        self._led = False  # whether someone leads, or has been asked to
        self._leading = threading.Lock()  # held by whoever does

    # --- for whoever has a change ------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> bool:
        """Add a job to the queue. True: nobody leads, so the caller must see to it that `lead` is called."""
        if self._database.unwritable is not None:
            raise self._database.unwritable
        with self._mutex:
            must_lead, self._led = not self._led, True
            if not must_lead:
                job.wait_for_call()
            self._queue.append(job)
            return must_lead

    def withdraw(self, job: Job) -> bool:
        """Take a job back. False: it is running or done, so its outcome has to be waited for."""
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
        except BaseException as exc:  # interrupted: what was not begun is not to be begun any more
            if not self.withdraw(job):
                self._fail(job, exc)
            raise
        if job.error is not None:
            raise job.error
        return job.result

    def _await(self, job: Job, asleep: threading.Lock) -> None:
        while not asleep.acquire(timeout=min(BEAT, max(0.0, job.deadline - time.monotonic()))):
            if time.monotonic() >= job.deadline and self.withdraw(job):
                job.error = kept_busy(self._database.name)
                return
            if not self._leading.locked():
                # Nobody leads. Most likely somebody is about to; but it may have been interrupted on the way, and to
                # lead when there is nothing to do does no harm.
                self.lead(job)
            if job.stage is Stage.DONE:
                return
        if job.stage is Stage.LEADING:
            self.lead(job)

    # --- for whoever only looks --------------------------------------------------------------------------------------

    def look(self, work: Work, deadline: float) -> Any:
        """Run a short read on the connection that writes, and return its result. None: somebody leads, so it was not.

        This connection has what it wrote last at hand. Any other has to read the file again after each change.
        """
        with self._mutex:
            if self._led or self._leading.locked():  # whoever has led still holds on for a moment
                return None
            self._led = True  # changes that come meanwhile wait
        with self._leading:
            try:
                db = self._database.borrow_writer(deadline)
                try:
                    if db.in_transaction:
                        roll_back(db)  # what an interrupt left behind
                    return work(db)
                finally:
                    self._database.return_writer()
            except (apsw.Error, OSError) as exc:
                raise translation(exc, self._database.name)  # noqa: B904 - with its cause
            finally:  # as whoever leads does, and like that before anybody else can lead
                self._settle()
                if self._led:
                    self._pass_on()

    # --- for whoever leads -------------------------------------------------------------------------------------------

    def lead(self, own: Job | None = None) -> None:
        """Run one batch of what waits, and pass the lead on. Raises nothing of a job's own.

        `own` is the job of the calling thread. An interrupt (Ctrl-C in the main thread, what a signal's handler raises)
        is raised to that thread's caller, whosever job was being run. It may end it between any two instructions. Hence
        jobs stay in the queue until they are settled, the next to lead settles what was left behind, and those who wait
        look after the lead.
        """
        with self._leading:
            first = self._first()
            if first is None:
                return
            try:
                db = self._database.borrow_writer(first.deadline)
                try:
                    if db.in_transaction:
                        roll_back(db)  # what an interrupt left behind
                    db.execute("BEGIN IMMEDIATE")  # a deferred BEGIN upgrades mid-way, and can deadlock
                    run_batch(db, self._database.name, self._claim())
                finally:
                    if db.in_transaction:
                        roll_back(db)
                    self._database.return_writer()
            except BaseException as exc:
                interrupted = is_interruption(exc)
                if first is own or not interrupted:
                    # No lock in the first job's time; the next may have more of it.
                    self._fail(first, translation(exc, self._database.name))
                if interrupted:
                    raise
            finally:
                self._settle()
                if self._led:  # or somebody has come since, who leads: to ask again does no harm
                    self._pass_on()

    def _first(self) -> Job | None:
        """The job on whose time the lock is waited for. None: all were withdrawn, and nobody needs to lead."""
        while True:
            with self._mutex:
                first = self._queue[0] if self._queue else None
                self._led = first is not None
                if first is None or first.stage not in _RUN:
                    return first
            self._settle()  # what an interrupt left behind

    def _claim(self) -> list[Job]:
        # Only now, with the lock in hand: what came while we waited for it is in, and what was withdrawn is out.
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
        """Take those that were run out of the queue, and tell whoever waits for them."""
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
        """Have the next in line lead."""
        with self._mutex:
            heir = self._queue[0] if self._queue else None
            self._led = heir is not None
            if heir is not None:
                heir.promote()
        if heir is not None:
            heir.lead_on()

    def forget(self) -> None:
        """In the child of a fork: the threads whose changes wait here are in the parent."""
        self._mutex = threading.Lock()
        self._leading = threading.Lock()
        self._queue.clear()
        self._led = False
