"""Calls in threads of their own, with their outcomes, and the queue of changes that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from everturn.backends.sqlite.transaction import Stage


class Attempt(threading.Thread):
    """A call in a thread of its own, and what became of it: a result or an error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as exc:  # noqa: BLE001 - it is what the test is about
            self.error = exc

    def outcome(self) -> Any:
        """The result or the error."""
        self.join(60)
        assert not self.is_alive(), "the call hangs"
        return self.result if self.error is None else self.error


def queue(store: Any) -> list[Any]:
    """The changes that wait; those that run stay in the queue until they are settled."""
    return [job for job in tuple(store._operations.backend._commits._queue) if job.stage is Stage.WAITING]


def play(story: Callable[[], Any]) -> None:
    """Run a coroutine function in an event loop of its own; fail if it hangs."""
    asyncio.run(asyncio.wait_for(story(), 100))
