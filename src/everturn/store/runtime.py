"""Runtime: how a store waits and computes. sync.py implements it for threads, aio.py for an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


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
