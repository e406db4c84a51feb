"""Transactions: runs a batch of changes together in one, or one by one where that fails.

group_commit.py decides which thread runs a batch, and when. apply_change.py is the work of one change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import apsw
import msgspec

from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.errors import translation
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

Work = Callable[[Connection], Any]


class Stage(Enum):
    """Stages of a change on its way to the commit."""

    WAITING = auto()
    LEADING = auto()  # still waiting; its thread is asked to run the next batch
    RUNNING = auto()  # too late to withdraw
    DONE = auto()


class Job(msgspec.Struct, eq=False):
    """One change on its way to the commit. A subclass knows how to wake the thread or task that waits for it."""

    work: Work
    deadline: float
    stage: Stage = Stage.WAITING
    result: Any = None
    error: BaseException | None = None

    def wait_for_call(self) -> None:
        """Get ready to wait: another thread leads, and will call `lead_on` or `wake`."""
        raise NotImplementedError

    def promote(self) -> None:
        """Mark it as first in the queue: its thread is to lead the next batch."""
        raise NotImplementedError

    def lead_on(self) -> None:
        """Wake the thread that is to lead."""
        raise NotImplementedError

    def wake(self) -> None:
        """Wake the thread or task that waits for it: it is done."""
        raise NotImplementedError


def run_batch(db: Connection, name: str, batch: list[Job]) -> None:
    """Run the batch in the open transaction, and commit. Afterwards every job is done, with a result or an error."""
    if len(batch) > 1 and _together(db, name, batch):
        return
    for job in batch:
        _alone(db, name, job)


def _together(db: Connection, name: str, batch: list[Job]) -> bool:
    """Run the batch as one transaction. False: SQLite rolled it back as a whole, and each job has to run alone.

    A full disk, an IO error or an interrupt ends the transaction whatever the savepoints say, and SQLite does not tell
    which change was the cause. One by one, the good ones pass.
    """
    db.patience.deadline = max(job.deadline for job in batch)
    try:
        for job in batch:
            _in_savepoint(db, name, job)
        _commit(db, name)
    except MemoryStoreBackendError as exc:
        if exc.outcome == "not_written":
            roll_back(db)
            return False
        for job in batch:
            job.error = exc
    for job in batch:
        job.stage = Stage.DONE
    return True


def _in_savepoint(db: Connection, name: str, job: Job) -> None:
    """Run one change of several. Its error becomes `job.error`; raises only if the whole transaction ended."""
    job.result = job.error = None
    try:
        db.execute("SAVEPOINT change")
        try:
            job.result = job.work(db)
        except Exception as exc:
            if not db.in_transaction or is_interruption(exc):
                raise
            job.error = translation(exc, name)
            db.execute("ROLLBACK TO change")
        db.execute("RELEASE change")
    except (apsw.Error, OSError) as exc:
        raise translation(exc, name)  # noqa: B904 - with its cause


def _alone(db: Connection, name: str, job: Job) -> None:
    """Run one change as a transaction of its own."""
    job.result = job.error = None
    db.patience.deadline = job.deadline
    try:
        if not db.in_transaction:
            db.execute("BEGIN IMMEDIATE")
        job.result = job.work(db)
        _commit(db, name)
    except Exception as exc:
        roll_back(db)
        if is_interruption(exc):
            raise  # to the caller of this thread, which the signal was for, and not to the waiter of the job
        job.error = translation(exc, name)
    job.stage = Stage.DONE


def _commit(db: Connection, name: str) -> None:
    try:
        db.execute("COMMIT")
    except (apsw.Error, OSError) as exc:  # OSError: from a VFS written in Python
        # A failed write is no commit. After a failed sync it is unknown: a crash could bring the change back.
        unwritten = isinstance(exc, (apsw.FullError, apsw.BusyError)) or (
            isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_WRITE
        )
        raise translation(exc, name, "not_written" if unwritten else "unknown")  # noqa: B904 - with its cause


def roll_back(db: Connection) -> None:
    if db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")
