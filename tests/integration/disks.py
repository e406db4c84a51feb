"""A real disk whose syncs can be held back, or made to fail, one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from everturn.testing.faults.disks import SlowSyncVFS

PATIENCE = 60.0


class HeldDisk(SlowSyncVFS):
    """While `held`, a sync waits; `reached` is set when one does. `fail` makes the next ones fail, with an error of
    SQLite's or, as a VFS of somebody else's may, one of Python's."""

    def __init__(self, name: str, *, seconds: float = 0.0) -> None:
        super().__init__(name, seconds=seconds)
        self.reached = threading.Event()
        self._let_go = threading.Event()
        self._let_go.set()
        self._to_fail = 0
        self._error: Exception | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        self.reached.clear()
        self._let_go.clear()
        try:
            yield
        finally:
            self._let_go.set()

    def let_go(self) -> None:
        self._let_go.set()

    def fail(self, syncs: int, error: Exception | None = None) -> None:
        self._to_fail = syncs
        self._error = error

    def delay(self) -> None:
        super().delay()
        if not self._let_go.is_set():
            self.reached.set()
            assert self._let_go.wait(PATIENCE), "a sync was held and never let go"
        if self._to_fail:
            self._to_fail -= 1
            raise self._error or apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
