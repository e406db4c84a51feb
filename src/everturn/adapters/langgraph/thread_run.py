"""ThreadRun: the lease of a thread for one run, and the fence that the puts of the run carry.

put.py asks here for the lease of each put. store/leases.py has the lease itself.
"""

from __future__ import annotations

from inspect import isawaitable
from os import getpid
from threading import Lock
from typing import TypeAlias

from everturn import AsyncLease, AsyncMemoryStore, Lease, LeaseHeld, MemoryStoreError
from everturn.adapters._shared.sync_async import CallRunner
from everturn.adapters.langgraph.config import session_of, thread_of

AnyLease: TypeAlias = Lease | AsyncLease


class LeasedRuns:
    """The leases of the runs that a saver has under way: at most one for each thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._leases: dict[str, tuple[int, AnyLease]] = {}  # by session id: the process, and the lease

    def begin(self, lease: AnyLease) -> bool:
        """Note the lease of a run. Returns False, and changes nothing, while an earlier run of the thread is there."""
        with self._lock:
            pid, _ = self._leases.get(lease.session_id, (0, None))
            if pid == getpid():
                return False
            self._leases[lease.session_id] = getpid(), lease  # one of another process was inherited by a fork
            return True

    def end(self, lease: AnyLease) -> None:
        """Forget the lease of a run; another one of the thread stays."""
        with self._lock:
            if self._leases.get(lease.session_id, (0, None))[1] is lease:
                del self._leases[lease.session_id]

    async def fence(self, session_id: str) -> AnyLease | None:
        """Return the lease that a put into the session must name; None if its thread has no run of this saver.

        A lease is of one session, the thread's. For the session of a subgraph it is renewed first, which raises
        LeaseLost if it is not in force any more; then the put goes without.
        """
        if not self._leases:
            return None
        thread, namespace = thread_of(session_id)
        _, lease = self._leases.get(session_of(thread), (0, None))
        if lease is None or not namespace:
            return lease
        renewal = lease.renew()
        if isawaitable(renewal):
            await renewal
        return None


class ThreadRun:
    """The right to run a thread, for `with` or `async with`. Made by `EverturnSaver.run`; entering returns a lease."""

    def __init__(self, runner: CallRunner, runs: LeasedRuns, thread: object, *, seconds: float, wait: float) -> None:
        self._runner = runner
        self._store: AsyncMemoryStore = runner.store
        self._runs = runs
        self._session_id = session_of(thread)
        self._seconds = seconds
        self._wait = wait
        self._lease: AnyLease | None = None

    def __enter__(self) -> AnyLease:
        return self._runner.run_blocking(self._begin())

    def __exit__(self, *_: object) -> None:
        self._runner.run_blocking(self._end())

    async def __aenter__(self) -> AnyLease:
        try:
            return await self._runner.run_async(self._begin())
        except BaseException:
            # Cancelled while a thread took it: without this it would be renewed for ever, and nobody would hold it.
            await self._runner.run_async(self._end())
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._runner.run_async(self._end())

    async def _begin(self) -> AnyLease:
        """Take the lease, and note it for the puts. Raises LeaseHeld."""
        lease: AnyLease = await self._store.lease(self._session_id, seconds=self._seconds, wait=self._wait, renew=True)
        if not self._runs.begin(lease):
            await _release(lease)
            raise LeaseHeld(
                f"session {self._session_id!r}: an earlier run of this saver lost its lease, and has not ended yet; "
                "its puts are refused. Try again when it has ended, or with a saver of another process",
                session_id=self._session_id,
                token=lease.token,
                left=0.0,
            )
        self._lease = lease
        return lease

    async def _end(self) -> None:
        """Release the lease. The puts forget it first: whoever takes it next may be a run of this saver."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._runs.end(lease)
            await _release(lease)


async def _release(lease: AnyLease) -> None:
    """Release a lease. One that is lost, or cannot be released, frees itself by time."""
    try:
        released = lease.release()
        if isawaitable(released):
            await released
    except MemoryStoreError:
        pass
