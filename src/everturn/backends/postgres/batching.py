"""Changes that wait at the same time share one statement, one round trip and one commit. For an event loop.

It decides which changes travel together, and delivers their outcomes. The database decides what a change does.

One statement is under way at a time, and changes that come then wait for the next; a lone change goes at once, in the
task of its caller. Only where a statement is slow (a lock, a dead connection) another one is sent beside it, up to
MOST_STATEMENTS of them.
Each change is all or nothing on its own: the database refuses one without the others. If the statement itself fails, it
has undone them all, and each is sent again by itself, so that only the one at fault fails.

A statement holds a bounded number of bytes. Large changes have a queue of their own: small ones behind them would wait
for as long as they take.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from everturn import telemetry
from everturn.backend import ChangeOutcome, ChangeRequest
from everturn.backends._shared.deadline_watch import DeadlineWatch
from everturn.backends.postgres import errors
from everturn.backends.postgres.change_wire import RequestWindow, size_of
from everturn.backends.postgres.executor import AsyncExecutor, Rows, SqlCall
from everturn.errors import CorruptEntry, MemoryStoreBackendError

MOST_STATEMENTS = 4  # under way at a time
MOST_LARGE_STATEMENTS = 2
LARGE = 2**18  # bytes of entries that make a change a large one
SLOW = 0.05  # seconds after which another statement is sent beside: one of many changes does not take that long
LARGEST = 256
MOST_BYTES = 2**22  # of entries in one statement of several changes
PATIENCE = 0.25  # seconds that a shared statement waits for one session's lock, while others wait for the statement

NewCall = Callable[[Sequence[ChangeRequest], Sequence[RequestWindow], float], SqlCall]
"""The call for some changes, each within its window, whose locks may be waited for so many seconds."""

Outcomes = Callable[[Sequence[ChangeRequest], Rows, float], Sequence[ChangeOutcome | errors.Late]]
"""Reads the outcomes of changes that were sent at some moment from their rows."""


def has_undone(error: Exception) -> bool:
    """Whether the statement that failed is known to have changed nothing, so that its changes can go one by one."""
    return isinstance(error, CorruptEntry) or getattr(error, "outcome", "unknown") == "not_written"


def _is_ending() -> bool:
    """Whether this task was cancelled: only the end of an event loop does that, and then nobody waits any more."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Waiting:
    """A change that a task waits for."""

    __slots__ = ("answer", "deadline", "request", "sent", "size")

    def __init__(self, request: ChangeRequest, size: int, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.size = size
        self.deadline = deadline
        self.answer: asyncio.Future[ChangeOutcome] = loop.create_future()
        self.sent = False

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class ChangeBatcher:
    """The changes of one store that wait, small and large ones."""

    def __init__(
        self, executor: AsyncExecutor, window: Callable[[float], RequestWindow], new_call: NewCall, outcomes: Outcomes
    ) -> None:
        self._small = StatementQueue(executor, window, new_call, outcomes, MOST_STATEMENTS)
        self._large = StatementQueue(executor, window, new_call, outcomes, MOST_LARGE_STATEMENTS)

    async def send(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        """Have a change made, with others that wait. Cancelled before it was sent, it is not made."""
        size = size_of(request)
        return await (self._small if size < LARGE else self._large).send(request, size, deadline)

    async def close(self) -> None:
        """Wait for statements that are under way."""
        await self._small.close()
        await self._large.close()


class StatementQueue:
    """A queue of changes, and the statements under way that empty it: at most `most` at a time."""

    def __init__(
        self,
        executor: AsyncExecutor,
        window: Callable[[float], RequestWindow],
        new_call: NewCall,
        outcomes: Outcomes,
        most: int,
    ) -> None:
        self._executor = executor
        self._window = window
        self._new_call = new_call
        self._outcomes = outcomes
        self._most = most
        self._queue: deque[_Waiting] = deque()
        self._senders: set[asyncio.Future[None]] = set()  # tasks; a plain future for a caller that sends its own change
        self._begun = 0  # statements begun
        self._deadlines = DeadlineWatch(self._expire)
        self._watch: asyncio.TimerHandle | None = None

    async def send(self, request: ChangeRequest, size: int, deadline: float) -> ChangeOutcome:
        """Have a change made, whose entries have so many bytes."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, size, deadline, loop)
        self._queue.append(waiting)
        if not self._senders:
            outcome = await self._sent_alone(waiting)
            if outcome is not None:
                return outcome
        elif self._watch is None:
            self._watch = loop.call_later(SLOW, self._look, self._begun)
        self._deadlines.add(waiting, deadline)
        try:
            return await asyncio.shield(waiting.answer)
        except asyncio.CancelledError:
            await self._settle(waiting)
            raise
        finally:
            self._deadlines.remove(waiting)

    async def _sent_alone(self, waiting: _Waiting) -> ChangeOutcome | None:
        """Send a change in the task of its caller: no other has to wake up. Those who come meanwhile wait.

        None: others came in the same step of the loop, and all of them are left to a task, for one statement.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._senders.add(place)
        try:
            await asyncio.sleep(0)
            if len(self._queue) > 1:
                return None
            self._queue.clear()
            self._begun += 1
            sent = time.monotonic()
            until = waiting.deadline
            rows = await self._executor.send_to_the_end(
                lambda: self._call_for([(waiting.request, until)], until), until
            )
        except asyncio.CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            raise
        finally:
            self._senders.discard(place)
            place.set_result(None)
            if self._queue and not self._senders:
                self._start_sender()
        (outcome,) = self._outcomes([waiting.request], rows, sent)
        if isinstance(outcome, errors.Late):
            raise outcome
        telemetry.record(telemetry.COMMIT_SIZE, "postgres", 1)
        return outcome

    def _start_sender(self) -> None:
        self._senders.add(asyncio.get_running_loop().create_task(self._run()))

    def _look(self, begun: int) -> None:
        """Start another sender if no statement has begun since."""
        self._watch = None
        if not self._queue:
            return
        if begun == self._begun and len(self._senders) < self._most:
            self._start_sender()
        self._watch = asyncio.get_running_loop().call_later(SLOW, self._look, self._begun)

    async def _settle(self, waiting: _Waiting) -> None:
        """Take back the change of a caller that has gone, or wait until its outcome is known."""
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
            waiting.fail(errors.unanswered(self._executor.name))
        else:
            if waiting in self._queue:
                self._queue.remove(waiting)
            waiting.fail(errors.exhausted(self._executor.name))

    async def _run(self) -> None:
        try:
            await self._empty_queue()
        finally:
            # In the same step as the last look at the queue: nobody can wait for a sender that has ended.
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if self._queue and not self._senders:  # it was cancelled, as all tasks are by whoever ends an event loop
                self._fail(list(self._queue), errors.withdrawn(self._executor.name))
                self._queue.clear()

    async def _empty_queue(self) -> None:
        while self._queue:
            self._begun += 1
            batch: list[_Waiting] = []
            # Claimed only with a connection in hand: what came meanwhile is in, what was withdrawn is out.
            latest = max(waiting.deadline for waiting in self._queue)
            error = await self._send(partial(self._claim, batch), latest)
            if error is None:
                telemetry.record(telemetry.COMMIT_SIZE, "postgres", len(batch))
                continue
            if not batch:  # there is no connection to be had
                self._fail(list(self._queue), error)
                self._queue.clear()
            elif len(batch) == 1 or not has_undone(error) or _is_ending():
                self._fail(batch, error)
            else:
                await asyncio.gather(*map(self._alone, batch))

    def _claim(self, batch: list[_Waiting]) -> list[_Waiting]:
        size = 0
        while self._queue and len(batch) < LARGEST:
            size += self._queue[0].size
            if batch and size > MOST_BYTES:
                break
            batch.append(self._queue.popleft())
        # In one order for all workers: two statements that lock the same sessions never wait for each other in a ring.
        batch.sort(key=lambda waiting: waiting.request.session_id)
        return batch

    async def _alone(self, waiting: _Waiting) -> None:
        if waiting.answer.done():
            return
        try:
            error = await self._send(lambda: [waiting], waiting.deadline)
        except asyncio.CancelledError:  # before there was a connection: its statement was undone, and no other was sent
            waiting.fail(errors.withdrawn(self._executor.name))
            raise
        if error is not None:
            waiting.fail(error)

    async def _send(self, choose: Callable[[], list[_Waiting]], deadline: float) -> Exception | None:
        """Send those that are chosen once a connection is in hand, and deliver their outcomes; or say why not."""
        batch: list[_Waiting] = []

        def call() -> SqlCall | None:
            batch.extend(choose())
            for waiting in batch:
                waiting.sent = True
            if not batch:
                return None
            return self._call_for([(waiting.request, waiting.deadline) for waiting in batch], deadline)

        sent = time.monotonic()
        try:
            rows = await self._executor.send(call, deadline)
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            return exc
        except asyncio.CancelledError:
            self._fail(
                batch, errors.unanswered(self._executor.name)
            )  # by a client of the user's, or before it was sent
            raise
        if rows:
            for waiting, outcome in zip(
                batch, self._outcomes([waiting.request for waiting in batch], rows, sent), strict=True
            ):
                if isinstance(outcome, errors.Late):
                    waiting.fail(outcome)
                elif not waiting.answer.done():
                    waiting.answer.set_result(outcome)
        return None

    def _call_for(self, changes: Sequence[tuple[ChangeRequest, float]], deadline: float) -> SqlCall:
        """Make the call for some changes, each with its deadline. `deadline` is that of the call."""
        windows = [self._window(until) for _, until in changes]
        left = deadline - windows[0].sent
        patience = left if len(changes) == 1 else min(left, PATIENCE)
        return self._new_call([request for request, _ in changes], windows, patience)

    def _fail(self, batch: list[_Waiting], error: Exception) -> None:
        for waiting in batch:
            waiting.fail(error)
            if isinstance(error, MemoryStoreBackendError):  # each gets its own: whoever catches it may write on it
                error = MemoryStoreBackendError(*error.args, outcome=error.outcome, transient=error.transient)

    async def close(self) -> None:
        """Wait for statements that are under way."""
        while self._senders:
            await asyncio.wait(list(self._senders))
        if self._watch is not None:
            self._watch.cancel()
        self._deadlines.close()
