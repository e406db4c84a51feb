"""Decides whether a request is sent again after a transient fault, until it is answered or the time-out is over.

Backends themselves handle redirections of a cluster, waits for locks, scripts that a server has forgotten, and requests
that DynamoDB throttled. Adapters and trim repeat a change that met a conflict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar

import msgspec

from everturn import events
from everturn.backend import Backend, ChangeOutcome
from everturn.errors import MemoryStoreBackendError

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
operation: ContextVar[str] = ContextVar("operation", default="")  # the method that is under way, for events
ANSWER_TIME = 0.1  # of the time-out: left for the answer to the latest attempt at a request that was refused each time


class Settings(msgspec.Struct, frozen=True):
    """The options every store has, whatever its backend."""

    ttl: float | None = None
    timeout: float = 5.0
    max_message_bytes: int = 16 * 2**20
    place: str = ""  # the URL without its password, for events


class Runtime(Protocol):
    """Differences between a blocking and an asynchronous store: its clock, its sleep, and where it computes."""

    @property
    def awaits(self) -> bool:
        """Whether a caller's coroutine can be waited for."""

    def clock(self) -> float:
        """Tell the time, as time.monotonic does."""

    async def sleep(self, seconds: float) -> None:
        """Wait, by blocking the thread or by leaving it to the event loop."""

    async def offload(self, think: Callable[[], T]) -> T:
        """Run a long computation, or a function of the caller, where it holds up no event loop and no other call."""

    async def answer(self, awaitable: Awaitable[T], path: str) -> T:
        """Wait for a caller's coroutine; `path` names the argument that made it.

        Raises InvalidInput in a blocking store, which has no event loop.
        """


class RetryingSender:
    """Sends requests to a backend, again after a transient fault, within the store's time-out."""

    def __init__(self, backend: Backend, settings: Settings, runtime: Runtime) -> None:
        self.backend = backend
        self.settings = settings
        self.runtime = runtime
        self.source = source_of(backend, settings)

    async def call(self, send: Callable[[bool, float], Awaitable[T]], deadline: float | None = None) -> T:
        """Send a request until it is answered. `send` is called with whether it is a retry, and with the deadline.

        A call of several requests passes the `deadline` that they share; else it is the time-out from now. Raises
        MemoryStoreBackendError with outcome "not_written" only if no attempt can have been applied.
        """
        if deadline is None:
            deadline = self.runtime.clock() + self.settings.timeout
        try:
            return await send(False, deadline)  # noqa: FBT003 - said above
        except MemoryStoreBackendError as exc:
            error = exc
        # Outside the except block: an attempt is not the cause of the next one's fault.
        return await self._send_again(send, deadline, error)

    async def _send_again(
        self, send: Callable[[bool, float], Awaitable[T]], deadline: float, error: MemoryStoreBackendError
    ) -> T:
        """Send a request again, whose first attempt ended in this error, until it is answered or time is up."""
        latest, doubtful = error, error.outcome == "unknown"
        pause, attempts, begun, told = FIRST_PAUSE, 0, self.runtime.clock(), ""
        # A request that was refused each time is not in doubt. An attempt with no time for its answer would make it so.
        refused_until = deadline - ANSWER_TIME * self.settings.timeout
        # In doubt, up to the end: whoever hears "unknown" long before may see the request applied afterwards.
        while (
            latest.transient
            and (left := (deadline if doubtful else refused_until) - self.runtime.clock()) > FIRST_PAUSE
        ):
            await self.runtime.sleep(min(pause, left / 2))
            pause = min(2 * pause, LONGEST_PAUSE)
            attempts += 1
            self._tell_retry(attempts, latest, told, doubtful=doubtful)
            told = str(latest)
            try:
                answer = await send(True, deadline)  # noqa: FBT003
            except MemoryStoreBackendError as exc:
                # The attempt that may have been applied is the one to tell of. A later refusal, or an attempt for which
                # there was no time left, says less than the one before it.
                if exc.outcome == "unknown" or not (doubtful or self.runtime.clock() >= deadline):
                    error = exc
                latest, doubtful = exc, doubtful or exc.outcome == "unknown"
            else:
                seconds = self.runtime.clock() - begun
                events.tell(
                    events.RECOVERED, self.source, operation=operation.get(), attempts=attempts, seconds=seconds
                )
                return answer
        error.outcome = "unknown" if doubtful else "not_written"
        raise error

    def tell_replay(self, outcome: ChangeOutcome, session_id: str) -> None:
        """Tell of a change that had been made before."""
        events.tell(
            events.REPLAYED, self.source, operation=operation.get(), session_id=session_id, version=outcome.version
        )

    def _tell_retry(self, attempt: int, error: MemoryStoreBackendError, told: str, *, doubtful: bool) -> None:
        """Tell of a retry, and log it unless the one before had the same reason."""
        events.tell(
            events.RETRIED,
            self.source,
            log=str(error) != told,
            operation=operation.get(),
            attempt=attempt,
            outcome="unknown" if doubtful else "not_written",
            reason=events.reason(error),
        )


def source_of(backend: Backend, settings: Settings) -> events.Source:
    """Name the origin of a store's events: its backend, and its place."""
    parts = type(backend).__module__.split(".")
    return events.Source(parts[2] if parts[:2] == ["everturn", "backends"] else parts[0], settings.place)
