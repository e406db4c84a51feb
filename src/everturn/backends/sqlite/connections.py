"""Connections to one SQLite file: how they are set up, lent out, and closed before a fork.

It knows nothing of sessions or entries.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import Any, TypeAlias

import apsw

from everturn import private_files
from everturn.backends.sqlite import child_processes, file_paths, page_checksums, schema
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported

Bindings: TypeAlias = tuple[Any, ...] | Mapping[str, Any]

LONGEST_LOAN = 60.0  # seconds that a fork or close waits for calls under way
SHORTEST_PAUSE = 0.0001  # seconds between two looks at a lock: a long wait must not keep a processor busy
IDLE_READERS = 8  # connections kept open for the next read; more are opened under load, and closed after it


class Patience:
    """How long a connection waits for locks: until the call's deadline.

    SQLite's own busy handler backs off, so whoever has waited longest polls least, and starves. This one begins with a
    long random pause and polls the more often the longer it has waited: whoever came last lets the others go first.
    """

    # Not a part of Connection: a connection that its own handlers refer to is never closed by the garbage collector.

    def __init__(self) -> None:
        self.deadline = 0.0

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def wait(self, attempts: int) -> bool:
        if self.is_over():
            return False
        pause = random.uniform(0.0002, 0.003) / (1 + (attempts / 4) ** 2)  # noqa: S311 - it guards no secret
        time.sleep(max(SHORTEST_PAUSE, pause))
        return True


class Connection(apsw.Connection):
    """A connection of ours: it knows the store's namespace and how long it may wait."""

    namespace: str
    patience: Patience
    lives_from: float  # when the life of what is written begins; see clock.py

    def holds_an_old_snapshot(self) -> bool:
        """Whether a statement is still open though no transaction is: all that is read would be of its moment.

        The error of a call that failed midway has the frames of that call, which have the statement.
        """
        return not self.in_transaction and self.txn_state() != apsw.SQLITE_TXN_NONE

    def row(self, sql: str, bindings: Bindings = ()) -> Any:
        """The first row, as a tuple, or None. (Any, here and below: a statement and its reader know its columns.)"""
        return self.execute(sql, bindings).fetchone()

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Any]:
        """All rows, as tuples."""
        return self.execute(sql, bindings).fetchall()

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.execute(sql, bindings).fetchone()
        return None if row is None else row[0]


class Database:
    """One SQLite file: a connection for writing, connections for reading, and a gate to close them all for a fork."""

    def __init__(
        self,
        path: str,
        *,
        namespace: str,
        synchronous: str,
        vfs: str | None,
        checksums: bool = True,
        mode: int = private_files.MODE,
        read_only: bool = False,
    ) -> None:
        self.path = path  # "" is in memory: then there is one connection, for reading and writing
        self.name = path or "memory"
        self.unwritable: Unsupported | None = None  # why nothing may be written to it
        self._namespace = namespace
        self._synchronous = synchronous
        self._vfs = vfs
        self._checksums = checksums and vfs is None  # of the pages, if the file is new; decision 022 says why of `vfs`
        self._mode = mode
        self._read_only = read_only
        self._gate = threading.Lock()
        self._borrowers: set[int] = set()  # threads, each of which has one connection at a time
        self._closed = False
        self._writer: Connection | None = None
        self._idle: list[Connection] = []
        self._memory = threading.RLock()  # it knows whose it is; see `_take_memory`
        self.in_child: list[Callable[[], None]] = []  # called on the far side of a fork

    # --- lending -----------------------------------------------------------------------------------------------------

    def borrow_writer(self, deadline: float) -> Connection:
        """The connection for writing, until it is returned. One borrower at a time: group commit sees to that."""
        with self._gate:  # as in `_enter`; see `return_writer`
            if self._closed:
                raise self.closed_error()
            self._borrowers.add(get_ident())
        try:
            if self._writer is None:
                self._writer = self._connect(deadline)
        except BaseException:
            self._leave()
            raise
        if not self.path:
            self._take_memory(deadline)
        self._writer.patience.deadline = deadline
        return self._writer

    def _take_memory(self, deadline: float) -> None:
        if self._memory._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks, too
            return  # by a call of this thread that an interrupt ended before it could return it
        if not self._memory.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._leave()
            raise MemoryStoreBackendError("memory: other calls kept it busy until the time-out", outcome="not_written")

    def return_writer(self) -> None:
        if not self.path:
            self._memory.release()
        with self._gate:  # as `_leave` does, without a call: this is on the way of every change
            self._borrowers.discard(get_ident())

    @contextmanager
    def writer(self, deadline: float) -> Iterator[Connection]:
        """The same for a `with` block."""
        db = self.borrow_writer(deadline)
        try:
            yield db
        finally:
            self.return_writer()

    def reader(self, deadline: float) -> AbstractContextManager[Connection]:
        """A connection inside a read transaction: all that is read is of one moment."""
        return _Reader(self, deadline) if self.path else self.writer(deadline)

    @contextmanager
    def idle_connection(self, deadline: float) -> Iterator[Connection]:
        """A connection of one's own, with no transaction open. (In memory: the only one, behind its lock.)"""
        if not self.path:
            with self.writer(deadline) as db:
                yield db
            return
        db = self.borrow(deadline)
        try:
            yield db
        finally:
            self.take_back(db)

    def borrow(self, deadline: float) -> Connection:
        """The same, until it is taken back."""
        self._enter()
        try:
            return self._idle_or_new(deadline)
        except BaseException:
            self._leave()
            raise

    def take_back(self, db: Connection) -> None:
        try:
            self._keep_or_close(db)
        finally:
            self._leave()

    def _idle_or_new(self, deadline: float) -> Connection:
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._connect(deadline)
        db.patience.deadline = deadline
        return db

    def _keep_or_close(self, db: Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")  # nothing was written
        except apsw.Error:
            db.close()
            return
        if len(self._idle) < IDLE_READERS and not db.holds_an_old_snapshot():
            self._idle.append(db)
        else:
            db.close()

    def _enter(self) -> None:
        with self._gate:  # held across a fork, so that nothing is borrowed meanwhile
            if self._closed:
                raise self.closed_error()
            self._borrowers.add(get_ident())

    def _leave(self) -> None:
        with self._gate:
            self._borrowers.discard(get_ident())

    def _shut(self) -> None:
        """Take the gate when all has been returned: nothing is lent until it is released."""
        # Bounded: a thread that was interrupted between two instructions seems to borrow until it comes again.
        given_up = time.monotonic() + LONGEST_LOAN
        while True:
            self._gate.acquire()
            self._borrowers.discard(get_ident())
            if not self._borrowers or time.monotonic() >= given_up:
                return
            self._gate.release()
            time.sleep(0.0005)

    def closed_error(self) -> MemoryStoreBackendError:
        return MemoryStoreBackendError(f"the store on {self.name} is closed", outcome="not_written")

    # --- opening and closing -----------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Create or migrate the file, unless it is only to be read. Raises InvalidInput for one that is not ours."""
        if self.path:
            file_paths.refuse_unusable(self.path)
            if self._vfs is None and not self._read_only:
                file_paths.create(self.path, self._mode)
        with child_processes.lock:
            child_processes.open_files.add(self)  # before there is a connection that a fork could carry over
        try:
            if self._read_only:
                self._look_at(deadline)
                return
            with self.writer(deadline) as db:
                # The first statements on a new file can be refused without the busy handler being asked.
                patiently(lambda: schema.refuse_foreign(db, self.name), deadline)
                patiently(lambda: self._make_wal(db), deadline)
                if self.path and self._vfs is None:
                    page_checksums.refuse_damaged(db, self.path)
                self.unwritable = page_checksums.refusal(db, self.path, self._vfs) if self.path else None
                if self.unwritable is not None and schema.is_pending(db, self.name):
                    raise self.unwritable  # noqa: TRY301 - as any other error here, it closes what was opened
                patiently(lambda: schema.migrate(db, self.name), deadline)
        except BaseException:
            self.close()
            raise

    def _look_at(self, deadline: float) -> None:
        """Make sure that the file can be read as it is: looking creates nothing, and migrates nothing."""
        self.unwritable = Unsupported(f"{self.path} is opened read-only; open it without read_only to change it")
        if not Path(self.path).exists():
            raise InvalidInput("there is no such file, and read_only creates none", path=self.path)
        with self.idle_connection(deadline) as db:
            patiently(lambda: schema.refuse_pending(db, self.name), deadline)
            if self._vfs is None:
                page_checksums.refuse_damaged(db, self.path)

    def _connect(self, deadline: float) -> Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
        vfs, name = self._vfs or (page_checksums.vfs() if self.path else None), self.path or ":memory:"
        if self._read_only and self.path:
            flags, name = file_paths.to_look(self.path)
        db = Connection(name, flags=flags, vfs=vfs)
        db.namespace = self._namespace
        db.patience = Patience()
        db.patience.deadline = deadline
        # Else SQLite prepares a join anew at each call, to plan it for the very values: ten times what it takes to run.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        db.set_busy_handler(db.patience.wait)
        db.set_progress_handler(db.patience.is_over, 50_000)  # what takes long ends with the call's time, too
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten: erase means it
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA trusted_schema = OFF")
        if self._read_only:
            db.execute("PRAGMA query_only = ON")
        return db

    def _make_wal(self, db: Connection) -> None:
        if db.value("PRAGMA page_count") == 0:  # on any other file it would be a write, and without effect
            if self.path and self._checksums and page_checksums.vfs():
                page_checksums.reserve(db)  # first: auto_vacuum fixes the layout of a page
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        mode = db.execute("PRAGMA journal_mode = WAL").get
        if self.path and mode != "wal":
            raise Unsupported(
                f"{self.path}: this file system cannot share memory, so SQLite cannot use a WAL there; use a local disk"
            )

    @contextmanager
    def disposable_reader(self, deadline: float) -> Iterator[Connection]:
        """A connection inside a read transaction that nobody has after this: it may look past damaged pages."""
        self._enter()
        try:
            db = self._connect(deadline)
            try:
                db.execute("BEGIN")
                yield db
            finally:
                db.close()
        finally:
            self._leave()

    def close(self) -> None:
        """Wait for what is under way, then close every connection."""
        with self._gate:
            self._closed = True
        self._shut()
        try:
            self._close_connections()
        finally:
            self._gate.release()
        with child_processes.lock:
            child_processes.open_files.discard(self)

    def _close_connections(self) -> None:
        for db in (*self._idle, *filter(None, [self._writer])):
            with suppress(apsw.Error):
                db.close()
        self._idle.clear()
        self._writer = None

    # --- forks -------------------------------------------------------------------------------------------------------

    def before_os_fork(self) -> None:
        """SQLite keeps its lock table in the process, and a fork copies it: nothing may be open across one."""
        self._shut()
        if self.path:
            self._close_connections()

    def after_os_fork_in_parent(self) -> None:
        """Connections are opened again when they are needed."""
        self._gate.release()

    def after_os_fork_in_child(self) -> None:
        """The same here; but the other threads, and what they held or waited for, stayed in the parent."""
        self._gate = threading.Lock()
        self._borrowers.clear()
        for reset in self.in_child:
            reset()


class _Reader:
    """See Database.reader. A class: generators would take a fifth of what it takes to look at a session."""

    __slots__ = ("_database", "_db", "_deadline")

    def __init__(self, database: Database, deadline: float) -> None:
        self._database = database
        self._deadline = deadline

    def __enter__(self) -> Connection:
        self._db = db = self._database.borrow(self._deadline)
        try:
            db.execute("BEGIN")
        except BaseException:
            self._database.take_back(db)
            raise
        return db

    def __exit__(self, *_: object) -> None:
        self._database.take_back(self._db)


def patiently(step: Callable[[], object], deadline: float) -> None:
    """Repeat a step that SQLite refuses without asking the busy handler, until the deadline."""
    while True:
        try:
            step()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - as above
        else:
            return
