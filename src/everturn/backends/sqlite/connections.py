"""One connection to a SQLite file: how it is opened and set up, and how long it waits for locks.

Knows nothing of sessions or entries. database.py lends connections out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import apsw

from everturn import events

Bindings: TypeAlias = tuple[Any, ...] | Mapping[str, Any]

SHORTEST_PAUSE = 0.0001  # seconds between two looks at a lock: a long wait must not keep a processor busy
STEPS_BETWEEN_LOOKS = 50_000  # of SQLite's virtual machine: how often a long statement looks at its deadline


class Stamp(NamedTuple):
    """Facts by which a change of a file's own bytes is noticed. Its WAL is no part of it."""

    inode: int
    size: int
    changed: int


class Patience:
    """Waits of a connection for locks: until the call's deadline.

    SQLite's own busy handler backs off, so the one that has waited longest polls least, and starves. This begins with a
    long random pause and polls the more often the longer it has waited: the latest lets the others go first.
    """

    # Not a part of Connection: a connection that its own handlers refer to is never closed by the garbage collector.

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._since = 0.0  # when the present wait began; 0.0: it has been told
        self.deadline = 0.0
        self.may_wait = True  # False: a lock that is not free is an error at once

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def wait(self, attempts: int) -> bool:
        if self.is_over() or not self.may_wait:
            return False
        self._tell(attempts)
        pause = random.uniform(0.0002, 0.003) / (1 + (attempts / 4) ** 2)  # noqa: S311 - it guards no secret
        time.sleep(max(SHORTEST_PAUSE, pause))
        return True

    def _tell(self, attempts: int) -> None:
        now = time.monotonic()
        if attempts == 0:
            self._since = now
        elif self._since and now - self._since > events.LONG_WAIT:
            events.tell(events.LOCK_WAIT, events.Source("sqlite", f"sqlite:///{self._name}"), seconds=now - self._since)
            self._since = 0.0


class Connection(apsw.Connection):
    """A connection of ours: it knows the store's namespace and how long it may wait."""

    namespace: str
    patience: Patience
    seen: Stamp | None = None  # of a file that was opened as one that nobody changes; see read_only_files.py
    lives_from: float  # the moment from which a TTL of the present change counts; see _shared/steady_clock.py

    def holds_an_old_snapshot(self) -> bool:
        """Whether a statement is still open outside a transaction: every later read would show its moment.

        It happens when a call failed midway: the traceback of its error holds the frames, and these the statement.
        """
        return not self.in_transaction and self.txn_state() != apsw.SQLITE_TXN_NONE

    def row(self, sql: str, bindings: Bindings = ()) -> Any:
        """Return the first row as a tuple, or None. (Any, here and below: only a statement's reader knows columns.)"""
        return self.execute(sql, bindings).fetchone()

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Any]:
        """Return every row as a tuple."""
        return self.execute(sql, bindings).fetchall()

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """Return the first column of the first row, or None."""
        row = self.execute(sql, bindings).fetchone()
        return None if row is None else row[0]


def connect(
    name: str, flags: int, vfs: str | None, *, namespace: str, synchronous: str, query_only: bool, deadline: float
) -> Connection:
    """Open a connection with the settings that every connection of a store has."""
    db = Connection(name, flags=flags, vfs=vfs)
    db.namespace = namespace
    db.patience = Patience(name)
    db.patience.deadline = deadline
    # Else SQLite plans a join anew for the values of each call, which takes ten times as long as to run it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.set_busy_handler(db.patience.wait)
    db.set_progress_handler(db.patience.is_over, STEPS_BETWEEN_LOOKS)  # a long statement ends with the call's time too
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute("PRAGMA secure_delete = ON")  # deleted bytes are overwritten: erase depends on it
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA trusted_schema = OFF")
    if query_only:
        db.execute("PRAGMA query_only = ON")
    return db


def patiently(step: Callable[[], object], deadline: float) -> None:
    """Repeat a step that SQLite refuses without asking the busy handler, until the deadline.

    Raises apsw.BusyError if it is still refused then.
    """
    while True:
        try:
            step()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - as above
        else:
            return
