"""Rings a signal at one chosen step of a call, so that every place where its handler can raise is tried, one by one.

The steps are those at which Python looks for signals: where a function begins, and where one written in C has returned.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import everturn

_OURS = everturn.__path__[0]


class Stepper:
    """Has a handler raise an exception of one kind in the middle of calls of the main thread."""

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind
        self._step = self._ringing_at = 0
        self._raised: BaseException | None = None
        self._is_ours = False
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        self._raised = self._kind("the handler's own")
        raise self._raised

    def _look(self, frame: FrameType, event: str, _value: object) -> None:
        if event in {"call", "c_return"}:
            self._step += 1
            if self._step == self._ringing_at:
                self._is_ours = frame.f_code.co_filename.startswith(_OURS)
                signal.raise_signal(signal.SIGUSR1)

    def became(self, call: Callable[[], object], step: int) -> str:
        """Outcome of a call that is interrupted at a step: `in time` if it has fewer, `raised`, or else who lost
        it: `everturn`, `a driver` (or Python itself, within one of its modules or where it finalizes something)."""
        try:
            return self._outcome(call, step)
        finally:
            self._raised = None  # it has the frames of the call, and they what the call had

    def _outcome(self, call: Callable[[], object], step: int) -> str:
        self._step, self._ringing_at, self._raised = 0, step, None
        ignored: list[Any] = []
        sys.unraisablehook = ignored.append
        gc.collect()
        gc.disable()  # what is raised in a finalizer is lost
        try:
            sys.setprofile(self._look)
            call()
        except BaseException as exc:
            if self._raised is None:
                raise
            # The second is Python's own, made in a codec.
            if exc is self._raised or (type(exc) is self._kind and exc.__cause__ is self._raised):
                return "raised"
        finally:
            sys.setprofile(None)
            gc.enable()
            sys.unraisablehook = sys.__unraisablehook__
        if self._raised is None:
            return "in time"
        return "everturn" if self._is_ours and not ignored else "a driver"


def walk(kind: type[BaseException], call: Callable[[], object], between: Callable[[], object], stride: int) -> None:
    """Interrupt a call at each of its steps, or each so-manieth; `between` makes ready for the next.

    Fails if what the handler raised was lost within code of ours.
    """
    between()
    gc.collect()
    gc.freeze()  # so that the next collections have little to do
    stepper, found, step = Stepper(kind), Counter[str](), 1 + sum(kind.__name__.encode()) % stride
    while (became := stepper.became(call, step)) != "in time":
        assert became != "everturn", f"{kind.__name__} was lost at step {step}"
        found[became] += 1
        step += stride
        between()
    assert found["raised"] > found["a driver"] * 10, found
