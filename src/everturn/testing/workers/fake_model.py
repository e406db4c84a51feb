"""The model that a compaction asks for a summary, in the process where target code runs.

It answers at once, waits until the kit lets it answer, fails, or dies with its process. A clause decides which.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from typing import Any

from everturn.testing.workers.messages import ModelAction

SUMMARY = "summary of"
TURN_ID = re.compile(r"\bt\d+\.\d+\b")  # contents that the kit writes: Kit.turn


class ModelDown(Exception):
    """The error that the model raises when a clause wants it to fail."""


class FakeModel:
    """Writes summaries that name what they stand for, so that a clause can tell what became of every message."""

    def __init__(self, pause: Callable[[], None] | None = None) -> None:
        """`pause` blocks until the kit says that the model may answer."""
        self._pause = pause
        self._action: ModelAction = "answer"
        self.calls = 0

    def arm(self, action: ModelAction) -> None:
        """Decide what the next call does, and count calls from now on. Calls after the next answer at once."""
        self._action, self.calls = action, 0

    def summarize(self, messages: Any, earlier: Any = None) -> str:
        """Return the summary: the contents of these messages, and of the summary before them, in order."""
        self.calls += 1
        action, self._action = self._action, "answer"
        if action == "fail":
            raise ModelDown("the model is down")
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "pause" and self._pause is not None:
            self._pause()
        told = TURN_ID.findall(repr(earlier)) + TURN_ID.findall(repr(messages))
        return " ".join([SUMMARY, *dict.fromkeys(told)])

    async def asummarize(self, messages: Any, earlier: Any = None) -> str:
        """Do the same without holding up the event loop, as a client of a model does."""
        return await asyncio.to_thread(self.summarize, messages, earlier)
