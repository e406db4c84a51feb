"""Decides whether a request is sent again after a transient fault, until it is answered or the time-out is over.

Backends themselves handle redirections of a cluster, waits for locks, scripts that a server has forgotten, and requests
that DynamoDB throttled. Adapters and trim repeat a change that met a conflict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from everturn import events
from everturn.backend import Backend, ChangeOutcome
from everturn.errors import MemoryStoreBackendError
from everturn.store.options import Settings
from everturn.store.runtime import Runtime

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
operation: ContextVar[str] = ContextVar("operation", default="")  # the method that is under way, for events
ANSWER_TIME = 0.1  # the last part of the time-out, in which a request that was refused each time is not sent again


class RetryingSender:
    """Sends requests to a backend, again after a transient fault, within the store's time-out."""

    def __init__(self, backend: Backend, settings: Settings, runtime: Runtime) -> None:
        self.backend = backend
        self.settings = settings
        self.runtime = runtime
        self.source = source_of(backend, settings)

    async def send_with_retries(self, send: Callable[[bool, float], Awaitable[T]], deadline: float | None = None) -> T:
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
        # A request that was refused each time was certainly not applied. A last attempt without time for its answer
        # would put that in doubt.
        refused_until = deadline - ANSWER_TIME * self.settings.timeout
        # A request in doubt is sent until the time-out: a caller who is told "unknown" long before that could see the
        # request applied afterwards.
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
                # Raise the error of the attempt that may have been applied. A later refusal, or an attempt without any
                # time left, says less.
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
