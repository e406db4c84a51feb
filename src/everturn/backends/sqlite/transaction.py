"""How a batch of changes is run: together in one transaction, or one by one where that fails.

Who runs it, and when, is group_commit.py's business; what a change does, apply_change.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import apsw
import msgspec

from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.errors import translated, translation
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

Work = Callable[[Connection], Any]


class Stage(Enum):
    """How far a change has come."""

    WAITING = auto()
    LEADING = auto()  # still waiting, and asked to lead the next batch
    RUNNING = auto()  # too late to withdraw
    DONE = auto()


class Job(msgspec.Struct, eq=False):
    """One change on its way through. A subclass says how to reach whoever waits for it."""

    work: Work
    deadline: float
    stage: Stage = Stage.WAITING
    result: Any = None
    error: BaseException | None = None

    def wait_for_call(self) -> None:
        """Someone else leads: `lead_on` or `wake` will come from another thread."""
        raise NotImplementedError

    def promote(self) -> None:
        """It is first in line: whoever waits for it is to lead."""
        raise NotImplementedError

    def lead_on(self) -> None:
        """Wake whoever is to lead."""
        raise NotImplementedError

    def wake(self) -> None:
        """It is done: wake whoever waits for it."""
        raise NotImplementedError


def run_batch(db: Connection, name: str, batch: list[Job]) -> None:
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
    """Run one change of several. Its own error is its own; raises if it took the transaction with it."""
    job.result = job.error = None
    with translated(name):
        db.execute("SAVEPOINT change")
    try:
        with translated(name):
            job.result = job.work(db)
    except Exception as exc:
        if not db.in_transaction or is_interruption(exc):
            raise
        job.error = exc
    with translated(name):
        if job.error is not None:
            db.execute("ROLLBACK TO change")
        db.execute("RELEASE change")


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
            raise  # it is the thread's that runs the job, which may be another's
        job.error = translation(exc, name)
    job.stage = Stage.DONE


def _commit(db: Connection, name: str) -> None:
    try:
        db.execute("COMMIT")
    except (apsw.Error, OSError) as exc:  # an OSError is that of a VFS written in Python
        # Where writing failed there is no commit. After that, as when a sync fails, a crash could bring it back.
        unwritten = isinstance(exc, (apsw.FullError, apsw.BusyError)) or (
            isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_WRITE
        )
        raise translation(exc, name, "not_written" if unwritten else "unknown")  # noqa: B904 - with its cause


def roll_back(db: Connection) -> None:
    if db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")
