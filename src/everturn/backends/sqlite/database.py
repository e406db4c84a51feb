"""The connections of one SQLite file: lent out, taken back, and closed before an `os.fork`.

One connection writes, several read. Knows nothing of sessions or entries; connections.py sets a connection up.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import get_ident

import apsw

from everturn import events, private_files
from everturn.backends.sqlite import child_processes, file_paths, page_checksums, read_only_files, schema
from everturn.backends.sqlite.connections import Connection, connect, patiently
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported

LONGEST_LOAN = 60.0  # seconds that an os.fork or close waits for calls under way
IDLE_READERS = 8  # connections kept open for the next read; more are opened under load, and closed after it


class Database:
    """The connections of one SQLite file: one for writing, several for reading. Safe between threads.

    A gate stops lending while they are all closed, before an `os.fork` and at the end.
    """

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
        self.source = events.Source("sqlite", f"sqlite:///{path}" if path else "sqlite://")
        self.unwritable: Unsupported | None = None  # why nothing may be written to it
        self._namespace = namespace
        self._synchronous = synchronous
        self._vfs = vfs
        self._checksums = checksums and vfs is None  # of pages, in a new file; not with another VFS (decision 022)
        self._mode = mode
        self.read_only = read_only
        self._gate = threading.Lock()
        self._borrowers: set[int] = set()  # threads, each of which has one connection at a time
        self._closed = False
        self._writer: Connection | None = None
        self._idle: list[Connection] = []
        self._memory = threading.RLock()  # it knows the thread that owns it; `_take_memory` asks
        self.in_child: list[Callable[[], None]] = []  # called in the child of an os.fork

    # --- lending -----------------------------------------------------------------------------------------------------

    def borrow_writer(self, deadline: float) -> Connection:
        """Lend the connection for writing until it is returned. Group commit has one borrower at a time.

        Raises MemoryStoreBackendError (not_written) if the store is closed, or if memory is busy until the deadline.
        """
        with self._gate:  # `_enter`, written out, as in `return_writer`
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
            return  # a call of this thread owns it, which an interrupt ended before it could give it back
        if not self._memory.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._leave()
            raise MemoryStoreBackendError("memory: other calls kept it busy until the time-out", outcome="not_written")

    def return_writer(self) -> None:
        if not self.path:
            self._memory.release()
        with self._gate:  # `_leave`, written out: every change pays for a call here
            self._borrowers.discard(get_ident())

    def close_writer(self) -> None:
        """Close the connection for writing, by its borrower: the next one opens another. (In memory: end its
        transaction, for there is no other connection.)"""
        if self._writer is not None:
            if self.path:
                self._writer.close()
                self._writer = None
            elif self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    @contextmanager
    def writer(self, deadline: float) -> Iterator[Connection]:
        """Lend the connection for writing for a `with` block."""
        db = self.borrow_writer(deadline)
        try:
            yield db
        finally:
            self.return_writer()

    def reader(self, deadline: float) -> AbstractContextManager[Connection]:
        """Lend a connection inside a read transaction: every read in it shows one moment."""
        return _ReaderContext(self, deadline) if self.path else self.writer(deadline)

    @contextmanager
    def idle_connection(self, deadline: float) -> Iterator[Connection]:
        """Lend a connection that nobody else has, outside a transaction. (In memory: the only one, behind its lock.)"""
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
        """Lend such a connection of a file until it is given to `take_back`."""
        self._enter()
        try:
            return self._idle_or_new(deadline)
        except BaseException:
            self._leave()
            raise

    def take_back(self, db: Connection) -> None:
        """Take a connection back. Raises MemoryStoreBackendError (transient) if a look may have seen a mixture."""
        try:
            read_only_files.refuse_torn(db, self.path)
        finally:
            try:
                self._keep_or_close(db)
            finally:
                self._leave()

    def _idle_or_new(self, deadline: float) -> Connection:
        while True:
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._connect(deadline)
                break
            if db.seen is None or read_only_files.is_current(db, self.path):
                break
            db.close()
        db.patience.deadline = deadline
        return db

    def _keep_or_close(self, db: Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")  # a read transaction: it wrote nothing
        except apsw.Error:
            db.close()
            return
        if len(self._idle) < IDLE_READERS and not db.holds_an_old_snapshot():
            self._idle.append(db)
        else:
            db.close()

    def _enter(self) -> None:
        with self._gate:  # held across an os.fork, so that nothing is borrowed meanwhile
            if self._closed:
                raise self.closed_error()
            self._borrowers.add(get_ident())

    def _leave(self) -> None:
        with self._gate:
            self._borrowers.discard(get_ident())

    def _shut(self) -> None:
        """Take the gate once every connection has been returned. Until it is released, nothing is lent."""
        # Bounded: a thread that was interrupted between two instructions seems to borrow until it comes again.
        given_up = time.monotonic() + LONGEST_LOAN
        while True:
            self._gate.acquire()
            self._borrowers.discard(get_ident())
            if not self._borrowers or time.monotonic() >= given_up:
                return
            self._gate.release()
            time.sleep(0.0005)

    def tell_wait(self, since: float) -> float:
        """Tell of a wait behind other changes that is a long one by now. Returns `since`, or inf once it is told."""
        seconds = time.monotonic() - since
        if seconds <= events.LONG_WAIT:
            return since
        events.tell(events.LOCK_WAIT, self.source, seconds=seconds)
        return math.inf

    def closed_error(self) -> MemoryStoreBackendError:
        return MemoryStoreBackendError(f"the store on {self.name} is closed", outcome="not_written")

    # --- opening and closing -----------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Create or migrate the file, unless it is read_only.

        Raises InvalidInput for a file of another program, SchemaTooNew for one of a newer everturn, Unsupported where
        it cannot be written safely. In each case the file stays as it is.
        """
        if self.path:
            file_paths.refuse_unusable(self.path)
            if self._vfs is None and not self.read_only:
                file_paths.create(self.path, self._mode)
        with child_processes.lock:
            child_processes.open_files.add(self)  # before there is a connection that an os.fork could copy
        try:
            if self.read_only:
                read_only_files.add_looker(self)
                self._check_readable(deadline)
                return
            if self.path:
                read_only_files.add_writer(self)
            with self.writer(deadline) as db:
                # The first statements on a new file can be refused without the busy handler being asked.
                patiently(lambda: schema.refuse_foreign(db, self.name), deadline)
                patiently(lambda: self._make_wal(db), deadline)
                if self.path and self._vfs is None:
                    page_checksums.refuse_damaged(db, self.path)
                self.unwritable = page_checksums.refusal(db, self.path, self._vfs) if self.path else None
                if self.unwritable is not None and schema.is_pending(db, self.name):
                    raise self.unwritable  # noqa: TRY301 - like any other error here, it closes the connections
                patiently(lambda: schema.migrate(db, self.name), deadline)
        except BaseException:
            self.close()
            raise

    def _check_readable(self, deadline: float) -> None:
        """Check that the file can be read as it is. Creates nothing and migrates nothing."""
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
        namespace, synchronous = self._namespace, self._synchronous
        if self.read_only and self.path:
            return read_only_files.connect_to_look(
                self.path, vfs, namespace=namespace, synchronous=synchronous, deadline=deadline
            )
        return connect(
            name,
            flags,
            vfs,
            namespace=namespace,
            synchronous=synchronous,
            query_only=self.read_only,
            deadline=deadline,
        )

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
        """Lend a new connection inside a read transaction, closed afterwards: it may look past damaged pages."""
        self._enter()
        try:
            db = self._connect(deadline)
            try:
                db.execute("BEGIN")
                yield db
                read_only_files.refuse_torn(db, self.path)
            finally:
                db.close()
        finally:
            self._leave()

    def close(self) -> None:
        """Wait for calls under way, then close every connection. Later calls raise `closed_error`."""
        with self._gate:
            self._closed = True
        self._shut()
        try:
            self._close_connections()
        finally:
            self._gate.release()
        with child_processes.lock:
            child_processes.open_files.discard(self)
        read_only_files.remove_writer(self)

    def close_idle(self) -> None:
        """Wait for calls under way, and close every connection; later calls open others."""
        self._shut()
        try:
            self._close_connections()
        finally:
            self._gate.release()

    def _close_connections(self) -> None:
        for db in (*self._idle, *filter(None, [self._writer])):
            with suppress(apsw.Error):
                db.close()
        self._idle.clear()
        self._writer = None

    # --- os.fork -----------------------------------------------------------------------------------------------------

    def before_os_fork(self) -> None:
        """Close every connection: SQLite keeps its lock table in the process, and an os.fork would copy it."""
        self._shut()
        if self.path:
            self._close_connections()

    def after_os_fork_in_parent(self) -> None:
        """Lend again. Connections are opened when they are needed."""
        self._gate.release()

    def after_os_fork_in_child(self) -> None:
        """Lend again in the child. The other threads, and the locks they held, stayed in the parent."""
        self._gate = threading.Lock()
        self._borrowers.clear()
        for reset in self.in_child:
            reset()


class _ReaderContext:
    """Context of Database.reader. A class: a generator would cost a fifth of the time that `info` takes."""

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
