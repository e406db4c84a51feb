"""Tells exceptions of signal handlers from faults. An exception of a handler must reach the caller as it is.

A handler interrupts the main thread anywhere, also within a driver, and may raise the same types as a driver.
"""

from __future__ import annotations

import sys
from types import FrameType


def is_interruption(exc: BaseException) -> bool:
    """Whether this is not a fault of ours or of a driver's: KeyboardInterrupt and its like, or a handler raised it."""
    return not isinstance(exc, Exception) or raised_by_handler(exc) is not None


def raised_by_handler(exc: BaseException) -> BaseException | None:
    """Find the exception that a signal's handler raised: this one, or one that it wraps; None if no handler did.

    The innermost counts: redis-py gives its DataError the traceback of the TypeError that it wraps.
    """
    found: BaseException | None = None
    seen: set[int] = set()
    wrapped: BaseException | None = exc
    while wrapped is not None and id(wrapped) not in seen:
        if is_of_a_handler(wrapped):
            found = wrapped
        seen.add(id(wrapped))
        wrapped = wrapped.__cause__ or _raised_within_the_call(wrapped.__context__)
    return found


def _raised_within_the_call(context: BaseException | None) -> BaseException | None:
    """Return the context of an exception, unless a caller of ours was handling it before the call began.

    `except SoftTimeLimitExceeded: store.add_messages(...)` makes it the context of every fault of that call. A function
    that handles an exception stands first in its traceback, and such a caller has not returned yet.
    """
    if context is None or context.__traceback__ is None:
        return context
    handling: FrameType = context.__traceback__.tb_frame
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect` has the same, and is slow to import
    while frame is not None:
        if frame is handling:
            return None
        frame = frame.f_back
    return context


def is_of_a_handler(exc: BaseException) -> bool:
    """Whether a signal's handler raised this: it was given the frame that it interrupted, which is further out.

    It need not be the next one: compiled code that looks for signals (psycopg's) has a frame of its own in between.
    """
    outer: list[FrameType] = []
    trace = exc.__traceback__
    while trace is not None:
        for value in list(trace.tb_frame.f_locals.values()):
            given = value if type(value) is tuple else (value,)
            if any(type(part) is FrameType and part in outer for part in given):
                return True
        outer.append(trace.tb_frame)
        trace = trace.tb_next
    return False
