"""One opened instance of the target, in the process where target code runs, and the calls of its operations.

It knows the factory and the shape; worker.py decides what is called when.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from everturn.backend import drive
from everturn.testing.history import Recorder, Recording, says_not_written
from everturn.testing.kit.target import Offer, TargetError
from everturn.testing.results import Function
from everturn.testing.shapes import SHAPES, SentMessage, Shape, is_awaited, shape_of
from everturn.testing.shapes.base import await_if_needed
from everturn.testing.workers.fake_model import FakeModel
from everturn.testing.workers.messages import Fault, Opened, Outcome, Step

T = TypeVar("T")
_KIT_SESSION = "everturn kit"  # the session of the first object of a shape that is one object per session

# Operations that are recorded, with their names in a history.
_RECORDED: Mapping[str, Function] = {
    "append": "append",
    "read": "read",
    "replace": "replace",
    "trim": "trim",
    "clear": "clear",
    "save_snapshot": "snapshot",
    "rollback": "rollback",
    "undo": "undo",
}


class LocalInstance:
    """An instance of the target, opened in this process. An awaited store runs in the worker's event loop."""

    def __init__(
        self,
        factory: Callable[..., Any],
        offer: Offer,
        where: Path,
        options: Mapping[str, Any],
        loop: Loop,
        model: FakeModel,
    ) -> None:
        """Call the factory. Raises its errors, and TargetError for an object that has no shape."""
        self._factory = factory
        self._offer = offer
        self._where = where
        self._options = dict(options)
        self._loop = loop
        self._model = model
        self._closers: list[Callable[[], Any]] = []
        self._made: dict[str | None, Any] = {}
        first = self._call_factory(_KIT_SESSION)
        looping = inspect.isawaitable(first) or (shape_of(first) is None and hasattr(first, "__aenter__"))
        example = (loop.run if looping else drive)(self._entered(first))
        shape = shape_of(example)
        if shape is None:
            raise TargetError(
                f"the factory made a {type(example).__module__}.{type(example).__qualname__}, which has none of the "
                f"pairs of methods that the kit knows: {', '.join(one.methods() for one in SHAPES)}. Give it one of "
                "these (everturn check --init package.module:Class writes such a class); everturn docs contract says "
                "where they are described"
            )
        self._awaited = looping or is_awaited(example, shape)
        self._per_session = shape.per_session or "session_id" in offer.options
        if shape.per_session and "session_id" not in offer.options:
            raise TargetError(f"a {shape.name} is one object per session: the factory must take session_id")
        self._made[_KIT_SESSION if self._per_session else None] = example
        make = getattr(factory, "message", None) if offer.message else None
        self.shape: Shape = shape(example, self._source, make, awaited=self._awaited)
        self.shape.asks(model.asummarize if self._awaited else model.summarize, given="summarize" in offer.options)

    def describe(self) -> Opened:
        shape = self.shape
        twins = not self._awaited and callable(getattr(self._made_first, f"a{shape.appends_to[0]}", None))
        return Opened(shape.name, shape.unit, self._awaited, shape.operations(), twins)

    @property
    def _made_first(self) -> Any:
        return next(iter(self._made.values()))

    # --- objects -----------------------------------------------------------------------------------------------------

    def _call_factory(self, session: str | None) -> Any:
        options = dict(self._options)
        if "session_id" in self._offer.options:
            options["session_id"] = session
        if "summarize" in self._offer.options:
            options["summarize"] = self._model.summarize
        return self._factory(self._where, **options)

    async def _entered(self, made: Any) -> Any:
        if inspect.isawaitable(made):
            made = await made
        if shape_of(made) is None and hasattr(made, "__aenter__"):
            self._closers.append(lambda: made.__aexit__(None, None, None))
            return await made.__aenter__()
        if shape_of(made) is None and hasattr(made, "__enter__"):
            self._closers.append(lambda: made.__exit__(None, None, None))
            return made.__enter__()
        for name in ("aclose", "close"):
            if callable(close := getattr(made, name, None)):
                self._closers.append(close)
                break
        return made

    async def _source(self, session: str | None) -> Any:
        name = session if self._per_session else None
        if self._per_session and session is None:
            return self._made_first
        if name not in self._made:
            self._made[name] = await self._entered(self._call_factory(session))
        return self._made[name]

    # --- calls -------------------------------------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        return self._awaited

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine) if self._awaited else drive(coroutine)

    def taken(self, step: Step, recorder: Recorder | None = None) -> Outcome:
        """Take one step and wait for its end. The awaited twin of a blocking store needs an event loop."""
        if step.op == "append_awaited":
            return self._loop.run(self.take(step, recorder))
        return self.run(self.take(step, recorder))

    async def take(self, step: Step, recorder: Recorder | None = None) -> Outcome:
        """Take one step, and record it. An error that the target raises becomes the outcome."""
        began = time.monotonic()
        try:
            operation = getattr(self.shape, step.op)
            first = () if step.session is None else (step.session,)
            if recorder is None or step.op not in _RECORDED:
                value = await operation(*first, *step.args, **step.options)
            else:
                with _recorded(recorder, step) as call:
                    value = await operation(*first, *step.args, **step.options)
                    _note(call, step, value)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as exc:  # noqa: BLE001 - whatever a store raises is what is judged
            return Outcome(None, fault_of(exc), began, time.monotonic())
        return Outcome(value, None, began, time.monotonic())

    def close(self) -> None:
        """Close everything that was opened, latest first. Raises the first error, after all were tried."""

        async def close_all() -> None:
            errors: list[BaseException] = []
            while self._closers:
                try:
                    await await_if_needed(self._closers.pop()())
                except Exception as exc:  # noqa: BLE001 - the others are closed first
                    errors.append(exc)
            if errors:
                raise errors[0]

        self.run(close_all())


def _recorded(recorder: Recorder, step: Step) -> Recording:
    values = ids(step.args[0]) if step.op in {"append", "replace"} else None
    return recorder.call(
        _RECORDED[step.op],
        step.session or "",
        values=values,
        key=step.options.get("key"),
        snapshot=str(step.args[0]) if step.op == "rollback" else None,
        limit=step.args[0] if step.op == "trim" else None,
    )


def _note(call: Recording, step: Step, value: Any) -> None:
    if step.op == "read":
        call.saw(ids(value))
    elif step.op == "save_snapshot":
        call.named(value)


def ids(messages: Sequence[Any]) -> tuple[str, ...]:
    """Make the ids of messages for a history: their contents, because the kit never writes the same content twice.

    Long contents are shortened, with a checksum, so that a content that was cut off has another id.
    """
    return tuple(map(_id, (str(message.content) for message in messages)))


def _id(content: str) -> str:
    if len(content) <= 64:
        return content
    return f"{content[:24]}~{crc32(content.encode(errors='surrogatepass')):08x}"


def fault_of(exc: BaseException) -> Fault:
    trace = "".join(traceback.format_exception(exc)[-6:])
    return Fault(type(exc).__name__, str(exc)[:500], says_not_written(exc), trace[-3000:])


class Recorders:
    """The recorders of this process, one for each caller. They are kept because a caller's calls are numbered."""

    def __init__(self) -> None:
        self._record: str | None = None
        self._kept: dict[str, Recorder] = {}
        self._lock = threading.Lock()

    def of(self, record: str | None, who: str) -> Recorder | None:
        if record is None:
            return None
        with self._lock:
            if record != self._record:
                for recorder in self._kept.values():
                    recorder.close()
                self._record, self._kept = record, {}
            if who not in self._kept:
                self._kept[who] = Recorder(record, who)
            return self._kept[who]


class Loop:
    """The one event loop of a worker, made when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """End the loop and the threads of its executor. Does nothing if there is none."""
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            asyncio.set_event_loop(None)
            self._loop = None


__all__ = ["LocalInstance", "Loop", "Recorders", "SentMessage", "fault_of", "ids"]
