"""Leases: taken, renewed and released by one request each; and the objects that hold one, for both stores.

A lease is no change: it has no version, and refreshes no TTL. core/leases.py has the rules.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from everturn.backend import LONGEST_LEASE, LeaseOutcome, LeaseReading, LeaseRequest, Status
from everturn.core.leases import told_by
from everturn.core.validation import shown
from everturn.errors import InvalidInput, LeaseHeld, LeaseLost, MemoryStoreError, Unsupported
from everturn.model.held_lease import HeldLease
from everturn.store.arguments import checked_id
from everturn.store.lease_holder import LeaseHolder, lease_lost
from everturn.store.observed import observed, run_observed
from everturn.store.retries import RetryingSender
from everturn.store.worker_name import NamedWorker

if TYPE_CHECKING:
    from asyncio import Task

FIRST_LOOK, LONGEST_LOOK = 0.01, 0.5  # seconds between two looks at a lease that is waited for
LONGEST_WAIT = 10**11  # seconds: three thousand years. A greater whole number may be no float
RENEWALS = 3  # in the time that a lease lasts: two may fail


def checked_lease_seconds(seconds: object) -> float:
    """Check how long a lease lasts. Raises InvalidInput."""
    if type(seconds) not in (int, float) or not 0 < seconds <= LONGEST_LEASE:  # type: ignore[operator]  # a number
        raise InvalidInput(
            f"is a number of seconds above 0, up to {LONGEST_LEASE:,.0f} (a day), not {shown(seconds)}; a lease that "
            "is needed for longer is renewed",
            path="seconds",
        )
    return float(seconds)  # type: ignore[arg-type]  # a number


class LeaseOperations(RetryingSender, NamedWorker):
    """The requests behind `lease` and `get_lease`."""

    async def get_lease(self, session_id: str) -> HeldLease | None:
        """Look who holds the lease of a session now; None if nobody does."""
        session_id = checked_id(session_id)
        look = getattr(self.backend, "held_lease", None)
        if look is None:
            raise Unsupported(
                "this backend tells no lease: it implements everturn.backend.Backend without `held_lease`"
            )
        found: LeaseReading | None = await self.send_with_retries(lambda _, by: look(session_id, by))
        if found is None:
            return None
        by, since = told_by(found.holder)
        return HeldLease(session_id, found.token, by, since, found.until, found.left)

    async def take_lease(self, lease: LeaseHolder, wait: float) -> LeaseOutcome:
        """Take the lease; while another has it, look again until `wait` seconds are over. Raises LeaseHeld."""
        if type(wait) not in (int, float) or not 0 <= wait < math.inf:
            raise InvalidInput(f"is a number of seconds from 0 on, not {shown(wait)}", path="wait")
        session_id, until, pause = lease.session_id, self.runtime.clock() + min(wait, LONGEST_WAIT), FIRST_LOOK
        while True:
            outcome = await self.send_lease(lease, "take")
            left = until - self.runtime.clock()
            if outcome.status is Status.APPLIED:
                return outcome
            if left <= 0:
                raise LeaseHeld(
                    f"session {session_id!r}: another worker holds the lease {outcome.token}, for {outcome.left:.3g} s "
                    "unless it renews or releases it; wait for it (wait=), or leave the session to that worker "
                    "(get_lease tells which it is)",
                    session_id=session_id,
                    token=outcome.token,
                    left=outcome.left,
                )
            # At random: workers that wait together must not all look at the same moment.
            await self.runtime.sleep(min(pause * random.uniform(0.5, 1.0), left, max(outcome.left, FIRST_LOOK)))  # noqa: S311
            pause = min(2 * pause, LONGEST_LOOK)

    async def renew_lease(self, lease: LeaseHolder) -> LeaseOutcome:
        """Renew the lease for its seconds from now. Raises LeaseLost."""
        outcome = await self.send_lease(lease, "renew")
        return outcome if outcome.status is Status.APPLIED else self._lose(lease)

    async def release_lease(self, lease: LeaseHolder) -> None:
        """Release the lease. Raises LeaseLost if it is not this holder's any more."""
        if (await self.send_lease(lease, "release")).status is not Status.APPLIED:
            self._lose(lease)

    def _lose(self, lease: LeaseHolder) -> NoReturn:
        lease._is_lost = True  # noqa: SLF001 - the two modules are one part
        raise lease_lost(lease.session_id, lease.token)

    async def send_lease(self, lease: LeaseHolder, action: Literal["take", "renew", "release"]) -> LeaseOutcome:
        """Send one request about a lease, again after a transient fault: it may be applied twice without harm."""
        send = getattr(self.backend, "lease", None)
        if send is None:
            raise Unsupported("this backend has no leases: it implements everturn.backend.Backend without `lease`")
        request = LeaseRequest(lease.session_id, action, lease._holder, lease._token, lease.seconds)  # noqa: SLF001
        asked = time.monotonic()
        try:
            outcome: LeaseOutcome = await self.send_with_retries(lambda _, by: send(request, by))
        except (MemoryStoreError, GeneratorExit):
            raise
        except BaseException:
            # Cancelled, or interrupted: the request may have been applied, and nobody would hold the lease. The
            # holder's name is enough to give it up.
            if action == "take":
                await self._give_up(lease)
            raise
        if outcome.status is Status.APPLIED and action != "release":
            lease._take_over(outcome, asked, request.seconds)  # noqa: SLF001
        return outcome

    async def _give_up(self, lease: LeaseHolder) -> None:
        """Release a lease that this holder may have. Whatever hinders it: the lease frees itself by time."""
        with contextlib.suppress(MemoryStoreError):
            await self.send_lease(lease, "release")


class Lease(LeaseHolder):
    """The lease of a session, in a blocking store. Made by `MemoryStore.lease`; released at the end of a `with` block.

    Pass it to changes as `lease=`: they are refused with LeaseLost once it is not in force any more.
    """

    def __init__(self, operations: LeaseOperations, session_id: str, seconds: float, *, renew: bool) -> None:
        super().__init__(checked_id(session_id), checked_lease_seconds(seconds), operations.worker_name)
        self._operations = operations
        self._renews = renew
        self._has_ended = False
        self._woken = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, wait: float) -> Self:
        """Take it, and begin to renew it if that was asked for. Raises LeaseHeld."""
        run_observed(self._operations.take_lease(self, wait))
        if self._renews:
            self._renewer = threading.Thread(target=self._keep, name="everturn-lease", daemon=True)
            self._renewer.start()
        return self

    def renew(self, seconds: float | None = None) -> None:
        """Renew the lease for this many seconds from now (None: as many as before). Its token stays.

        Raises:
            LeaseLost: It is not in force any more, or was released. Nothing was changed.
        """
        self._refuse_if_over()
        if seconds is not None:
            self.seconds = checked_lease_seconds(seconds)
            self._woken.set()  # whoever renews it in the background waits for a part of the time of before
        run_observed(self._operations.renew_lease(self))

    def release(self) -> None:
        """Give the lease up, so that another worker can take it at once.

        Raises:
            LeaseLost: It is not this worker's any more, or was released before. Nothing was changed.
        """
        self._refuse_if_over()
        self._stop()
        run_observed(self._operations.release_lease(self))
        self._is_released = True

    def _refuse_if_over(self) -> None:
        _ = self.claim
        if self._is_released:
            raise lease_lost(self.session_id, self._token, "it was released")

    def _keep(self) -> None:
        """Renew it until it is released or lost. A fault is tried again: the lease lasts for a while."""
        while True:
            self._woken.wait(self.seconds / RENEWALS)
            self._woken.clear()
            if self._has_ended:
                return
            try:
                run_observed(self._operations.renew_lease(self))
            except LeaseLost:
                return
            except MemoryStoreError:
                if self.is_lost:  # its time is over: nobody can renew it any more
                    return

    def _stop(self) -> None:
        self._has_ended = True
        self._woken.set()
        if self._renewer is not None and self._renewer is not threading.current_thread():
            self._renewer.join()

    def __enter__(self) -> Self:
        self._refuse_if_over()
        return self

    def __exit__(self, *_: object) -> None:
        """Release it, unless this process is a fork. A lease that cannot be released frees itself by time."""
        if not self._is_released:
            with contextlib.suppress(MemoryStoreError):
                self.release()


class AsyncLease(LeaseHolder):
    """The lease of a session, in an asynchronous store. Made by `AsyncMemoryStore.lease`: await it, or enter it.

    Pass it to changes as `lease=`: they are refused with LeaseLost once it is not in force any more.
    """

    def __init__(
        self, operations: LeaseOperations, session_id: str, seconds: float, *, wait: float, renew: bool
    ) -> None:
        super().__init__(checked_id(session_id), checked_lease_seconds(seconds), operations.worker_name)
        self._operations = operations
        self._wait = wait
        self._renews = renew
        self._renewer: Task[None] | None = None

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._take().__await__()

    async def _take(self) -> Self:
        if self._token:
            self._refuse_if_over()
            return self
        await observed(self._operations.take_lease(self, self._wait))
        if self._renews:
            self._renew_in_background()
        return self

    def _renew_in_background(self) -> None:
        from asyncio import create_task

        self._renewer = create_task(self._keep(), name="everturn-lease")

    async def renew(self, seconds: float | None = None) -> None:
        """Renew the lease for this many seconds from now (None: as many as before). Its token stays.

        Raises:
            LeaseLost: It is not in force any more, or was released. Nothing was changed.
        """
        self._refuse_if_over()
        if seconds is not None:
            self.seconds = checked_lease_seconds(seconds)
            if self._renewer is not None:
                try:
                    await self._stop()  # it waits for a part of the time of before
                finally:
                    self._renew_in_background()
        await observed(self._operations.renew_lease(self))

    async def release(self) -> None:
        """Give the lease up, so that another worker can take it at once.

        Raises:
            LeaseLost: It is not this worker's any more, or was released before. Nothing was changed.
        """
        self._refuse_if_over()
        await self._stop()
        await observed(self._operations.release_lease(self))
        self._is_released = True

    def _refuse_if_over(self) -> None:
        _ = self.claim
        if self._is_released:
            raise lease_lost(self.session_id, self._token, "it was released")

    async def _keep(self) -> None:
        """Renew it until it is released or lost. A fault is tried again: the lease lasts for a while."""
        while True:
            await self._operations.runtime.sleep(self.seconds / RENEWALS)
            try:
                await observed(self._operations.renew_lease(self))
            except LeaseLost:
                return
            except MemoryStoreError:
                if self.is_lost:  # its time is over: nobody can renew it any more
                    return

    async def _stop(self) -> None:
        from asyncio import wait

        if self._renewer is not None:
            self._renewer.cancel()
            await wait([self._renewer])

    async def __aenter__(self) -> Self:
        return await self._take()

    async def __aexit__(self, *_: object) -> None:
        """Release it, unless this process is a fork. A lease that cannot be released frees itself by time."""
        if not self._is_released:
            with contextlib.suppress(MemoryStoreError):
                await self.release()
