"""Group commit: changes that wait at the same time share one transaction, and one sync of the disk.

It decides who runs which batch, and delivers outcomes; what a change does is in changes.py.

Whoever finds nobody leading leads: it takes the write lock, then everything that waits by then, runs each in a
savepoint, commits once, and passes the lead on. A lone caller thus pays for no thread and no hand-over. Nobody is told
of a success before the commit.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from typing import Any

import apsw

from everturn.backends.sqlite.connections import Connection, Database
from everturn.backends.sqlite.errors import translated
from everturn.errors import MemoryStoreBackendError

LARGEST_BATCH = 256

Work = Callable[[Connection], Any]


class Stage(Enum):
    """How far a change has come."""

    WAITING = auto()
    LEADING = auto()  # still waiting, and asked to lead the next batch
    RUNNING = auto()  # too late to withdraw
    DONE = auto()


class Job(ABC):
    """One change on its way through."""

    __slots__ = ("deadline", "error", "result", "stage", "work")

    def __init__(self, work: Work, deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.stage = Stage.WAITING
        self.result: Any = None
        self.error: BaseException | None = None

    @abstractmethod
    def wait_for_call(self) -> None:
        """Someone else leads: `lead_on` or `call` will come from another thread."""

    @abstractmethod
    def promote(self) -> int:
        """It is first in line: whoever waits for it is to lead. Returns the thread that will, 0 for one of our own."""

    @abstractmethod
    def lead_on(self) -> None:
        """Wake whoever is to lead."""

    @abstractmethod
    def call(self) -> None:
        """It is done: wake whoever waits for it."""

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class _ThreadJob(Job):
    """A change that a thread waits for. The thread that leads at once needs no event to wait for itself."""

    __slots__ = ("gone_on", "thread")

    def __init__(self, work: Work, deadline: float) -> None:
        super().__init__(work, deadline)
        self.gone_on: threading.Event | None = None
        self.thread = threading.get_ident()

    def wait_for_call(self) -> None:
        self.gone_on = threading.Event()

    def promote(self) -> int:
        self.stage = Stage.LEADING
        return self.thread

    def lead_on(self) -> None:
        self.call()

    def call(self) -> None:
        if self.gone_on is not None:
            self.gone_on.set()


def kept_busy(name: str) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(f"{name}: other changes kept it busy until the time-out", outcome="not_written")


class GroupCommit:
    """The queue of changes to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._queue: deque[Job] = deque()
        self._led = False  # whether someone leads, or has been asked to
        self._leader = 0  # the caller's thread that does; 0 for a thread of our own, or nobody

    # --- for whoever has a change ------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> bool:
        """Add a job to the queue. True: nobody leads, so the caller must see to it that `lead` is called."""
        with self._mutex:
            # A thread that comes with a change does not lead: if it should, an interrupt took it out of there.
            must_lead = not self._led or self._leader == threading.get_ident()
            if not must_lead:
                job.wait_for_call()
            self._led = True
            self._queue.append(job)
            return must_lead

    def withdraw(self, job: Job) -> bool:
        """Take a job back. False: it is running or done, so its outcome has to be waited for."""
        with self._mutex:
            if job.stage is Stage.WAITING:
                self._queue.remove(job)
                job.stage = Stage.DONE
                return True
            return False

    def run(self, work: Work, deadline: float) -> Any:
        """Run a change in the calling thread, or have another thread's batch run it; return when it is committed."""
        job = _ThreadJob(work, deadline)
        self.enqueue(job)
        if job.gone_on is None:
            self.lead()
        else:
            self._await(job, job.gone_on)
        return job.outcome()

    def _await(self, job: Job, gone_on: threading.Event) -> None:
        try:
            while not gone_on.wait(max(0.0, job.deadline - time.monotonic())):
                if self.withdraw(job):
                    job.error = kept_busy(self._database.name)
                    return
                gone_on.wait()  # it runs: its outcome is near, and must be known
        except BaseException:
            # Interrupted. The job must not be left in the queue, nor the lead with a thread that has gone.
            if not self.withdraw(job) and job.stage is Stage.LEADING:
                self._fail(job, KeyboardInterrupt())
                self._settle()
            raise
        if job.stage is Stage.LEADING:
            self.lead()

    # --- for whoever leads -------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Run one batch of what waits, and pass the lead on. Raises nothing of a job's own."""
        first = self._first()
        if first is None:
            return
        name = self._database.name
        try:
            with translated(name):
                db = self._database.borrow_writer(first.deadline)
                try:
                    _roll_back(db)  # what an interrupt may have left open
                    db.execute("BEGIN IMMEDIATE")  # a deferred BEGIN upgrades mid-way, and can deadlock
                    _run(db, name, self._claim())
                finally:
                    _roll_back(db)
                    self._database.return_writer()
        except BaseException as exc:
            self._fail(first, exc)  # no lock in the first job's time; the next may have more of it
            if not isinstance(exc, Exception):
                raise
        finally:
            self._settle()

    def _first(self) -> Job | None:
        """The job on whose time the lock is waited for. None: all were withdrawn, and nobody needs to lead."""
        with self._mutex:
            if self._queue:
                return self._queue[0]
            self._led, self._leader = False, 0
            return None

    def _claim(self) -> list[Job]:
        """The batch. It stays in the queue until it is settled, so that an interrupt cannot lose it."""
        # Only now, with the lock in hand: what came while we waited for it is in, and what was withdrawn is out.
        with self._mutex:
            batch = list(islice(self._queue, LARGEST_BATCH))
            for job in batch:
                job.stage = Stage.RUNNING
            return batch

    def _fail(self, job: Job, error: BaseException) -> None:
        """End a job that still waits with an error."""
        with self._mutex:
            if job.stage in (Stage.WAITING, Stage.LEADING):
                job.error = error
                job.stage = Stage.DONE

    def _settle(self) -> None:
        """Pass the lead on, and tell those whose jobs are done."""
        with self._mutex:
            settled: list[Job] = []
            while self._queue and self._queue[0].stage in (Stage.RUNNING, Stage.DONE):
                settled.append(self._queue.popleft())
            heir = self._queue[0] if self._queue else None
            self._led, self._leader = heir is not None, heir.promote() if heir is not None else 0
        if heir is not None:
            heir.lead_on()
        for job in settled:
            if job.stage is Stage.RUNNING:  # interrupted between the commit and its answer
                job.error = MemoryStoreBackendError("interrupted", outcome="unknown")
                job.stage = Stage.DONE
            job.call()

    def forget(self) -> None:
        """In the child of a fork: the threads whose changes wait here are in the parent."""
        self._mutex = threading.Lock()
        self._queue.clear()
        self._led, self._leader = False, 0


def _run(db: Connection, name: str, batch: list[Job]) -> None:
    """Run the batch in the open transaction. Afterwards every job is done, with a result or an error."""
    if len(batch) > 1 and _together(db, name, batch):
        return
    for job in batch:
        _alone(db, name, job)


def _together(db: Connection, name: str, batch: list[Job]) -> bool:
    """Run the batch as one transaction. False: SQLite dropped it as a whole, and each has to be run alone.

    Full disk, IO error, interrupt: these end the transaction whatever the savepoints say, and nobody says which change
    was the bad one. One by one, the good ones pass.
    """
    try:
        for job in batch:
            _in_savepoint(db, name, job)
        _commit(db, name)
    except MemoryStoreBackendError as exc:
        if exc.outcome == "not_written":
            _roll_back(db)
            return False
        for job in batch:
            job.error = exc
    _done(batch)
    return True


def _in_savepoint(db: Connection, name: str, job: Job) -> None:
    """Run one change of several. Its own error is its own; raises if it took the transaction with it."""
    job.result = job.error = None
    with translated(name):
        db.execute("SAVEPOINT change")
    try:
        with translated(name):
            job.result = job.work(db)
    except Exception as exc:
        if not db.in_transaction:
            raise
        job.error = exc
    with translated(name):
        if job.error is not None:
            db.execute("ROLLBACK TO change")
        db.execute("RELEASE change")


def _alone(db: Connection, name: str, job: Job) -> None:
    """Run one change as a transaction of its own."""
    job.result = job.error = None
    try:
        with translated(name):
            if not db.in_transaction:
                db.execute("BEGIN IMMEDIATE")
            job.result = job.work(db)
        _commit(db, name)
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is this job's, and raised to its caller
        _roll_back(db)
        job.error = exc
    _done([job])


def _commit(db: Connection, name: str) -> None:
    try:
        db.execute("COMMIT")
    except apsw.Error as exc:
        # Only a failed sync leaves a doubt: all was written by then, and a crash now could bring it back.
        doubtful = isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", None) != apsw.SQLITE_IOERR_WRITE
        with translated(name, "unknown" if doubtful else "not_written"):
            raise


def _done(batch: list[Job]) -> None:
    for job in batch:
        job.stage = Stage.DONE


def _roll_back(db: Connection) -> None:
    if db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")
