"""Changes that wait at the same time share one statement, one round trip and one commit. For an event loop.

It decides what travels together, and delivers outcomes; what a change does is decided in the database.

Up to LANES statements are under way at a time; what comes meanwhile waits for the next. A lone change goes at once.
Each change is all or nothing on its own: the database refuses one without the others. If the statement itself fails, it
has undone them all, and each is sent again by itself, so that only the one at fault fails.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from everturn.backend import ChangeOutcome, ChangeRequest
from everturn.backends.postgres import faults, requests
from everturn.backends.postgres.ports import AsyncPort, Call
from everturn.errors import MemoryStoreBackendError

LANES = 2
LARGEST = 256
PATIENCE = 0.25  # seconds that a shared statement waits for one session's lock, while others wait for the statement

NewCall = Callable[[Sequence[ChangeRequest], float], Call]
"""The call for some changes, whose locks may be waited for so many seconds."""


class _Waiting:
    """A change that a task waits for."""

    __slots__ = ("answer", "deadline", "request", "sent", "timer")

    def __init__(self, request: ChangeRequest, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.deadline = deadline
        self.answer: asyncio.Future[ChangeOutcome] = loop.create_future()
        self.sent = False
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Batches:
    """The queue of changes of one store."""

    def __init__(self, port: AsyncPort, new_call: NewCall) -> None:
        self._port = port
        self._new_call = new_call
        self._queue: deque[_Waiting] = deque()
        self._lanes: set[asyncio.Task[None]] = set()

    async def send(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        """Have a change made, with whatever else waits. Cancelled before it was sent, it is not made."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, deadline, loop)
        waiting.timer = loop.call_later(deadline - time.monotonic(), self._expire, waiting)
        self._queue.append(waiting)
        if len(self._lanes) < LANES:
            lane = loop.create_task(self._run())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        try:
            return await asyncio.shield(waiting.answer)
        except asyncio.CancelledError:
            await self._settle(waiting)
            raise
        finally:
            waiting.timer.cancel()

    async def _settle(self, waiting: _Waiting) -> None:
        """The caller has gone: take the change back, or wait until it is known what became of it."""
        if not waiting.sent:
            if waiting in self._queue:
                self._queue.remove(waiting)
            waiting.answer.cancel()
        while not waiting.answer.done():
            try:
                await asyncio.wait([waiting.answer])
            except asyncio.CancelledError:  # asked again; the answer is the same
                continue
        if not waiting.answer.cancelled():
            waiting.answer.exception()  # looked at: nobody else will

    def _expire(self, waiting: _Waiting) -> None:
        if waiting.sent:
            text = f"{self._port.name}: it did not answer within the time-out"
            waiting.fail(MemoryStoreBackendError(text, outcome="unknown"))
        else:
            if waiting in self._queue:
                self._queue.remove(waiting)
            waiting.fail(faults.exhausted(self._port.name))

    async def _run(self) -> None:
        while self._queue:
            batch = self._claim()
            if len(batch) == 1:
                await self._alone(batch[0])
            else:
                await self._together(batch)

    def _claim(self) -> list[_Waiting]:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), LARGEST))]
        # In one order for all workers: two statements that lock the same sessions never wait for each other in a ring.
        batch.sort(key=lambda waiting: waiting.request.session_id)
        return batch

    async def _together(self, batch: list[_Waiting]) -> None:
        try:
            await self._send(batch, PATIENCE)
        except MemoryStoreBackendError as exc:
            if exc.outcome == "unknown":
                for waiting in batch:
                    waiting.fail(MemoryStoreBackendError(str(exc), outcome="unknown", transient=exc.transient))
                return
            for waiting in batch:
                await self._alone(waiting)

    async def _alone(self, waiting: _Waiting) -> None:
        if waiting.answer.done():
            return
        try:
            await self._send([waiting], None)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is this change's, and raised to its caller
            waiting.fail(exc)

    async def _send(self, batch: list[_Waiting], patience: float | None) -> None:
        deadline = max(waiting.deadline for waiting in batch)
        left = deadline - time.monotonic()
        call = self._new_call([waiting.request for waiting in batch], left if patience is None else min(left, patience))
        for waiting in batch:
            waiting.sent = True
        rows = await self._port.send(call, deadline)
        for waiting, row in zip(batch, rows, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(requests.outcome(waiting.request, row))

    async def close(self) -> None:
        """Wait for what is under way."""
        while self._lanes:
            await asyncio.wait(list(self._lanes))
