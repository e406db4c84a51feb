"""A store's methods for frameworks that await, or do not, whichever face the store has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ParamSpec, TypeVar

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore, Unsupported

P = ParamSpec("P")
T = TypeVar("T")


class Awaited:
    """The methods of a store, awaited. A blocking store works in a thread, so that the event loop goes on."""

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        self._store = checked_store(store)

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Call a method. A cancelled caller waits until what it sent has settled, as with an asynchronous store."""
        call: Callable[..., Any] = getattr(self._store, method)
        if isinstance(self._store, AsyncMemoryStore):
            awaited: Coroutine[Any, Any, Any] = call(*args, **kwargs)
            return awaited
        return in_thread(call, *args, **kwargs)


class Both:
    """For a framework whose methods are there twice, blocking and awaited: each is written once, as a coroutine.

    Over a `MemoryStore` such a coroutine never suspends: `drive` runs it here, `run` in a thread. Over an
    `AsyncMemoryStore` `run` awaits it, and `drive` hands it to the store's loop from another thread.
    """

    def __init__(self, store: MemoryStore | AsyncMemoryStore, adapter: str) -> None:
        self.store = checked_store(store)
        self._adapter = adapter
        self._is_blocking = isinstance(store, MemoryStore)
        self._loop = _running_loop()  # of an asynchronous store; or of whoever awaits it first

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the store."""
        answer = getattr(self.store, method)(*args, **kwargs)
        return answer if self._is_blocking else await answer

    @property
    def blocking(self) -> MemoryStore:
        """The store, where it blocks. Raises Unsupported over an asynchronous one, which needs its event loop."""
        if isinstance(self.store, MemoryStore):
            return self.store
        raise self._needs_a_loop()

    def _needs_a_loop(self) -> Unsupported:
        return Unsupported(
            f"this {self._adapter} is over an AsyncMemoryStore: use its async methods, call the blocking ones "
            "from another thread while its event loop runs, or use everturn.open"
        )

    def drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end. Over an asynchronous store its loop does so, while this thread waits.

        Raises Unsupported in the loop's own thread, which would wait for itself, and if the loop does not run.
        """
        if not self._is_blocking:
            if self._loop is None or not self._loop.is_running() or _running_loop() is self._loop:
                coroutine.close()
                raise self._needs_a_loop()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        raise AssertionError("a blocking store suspended")  # pragma: no cover

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it; a blocking store does its work in a thread, so that the loop goes on."""
        if self._loop is None:
            self._loop = _running_loop()
        return await (in_thread(self.drive, coroutine) if self._is_blocking else coroutine)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def checked_store(store: MemoryStore | AsyncMemoryStore) -> MemoryStore | AsyncMemoryStore:
    """The store. Raises InvalidInput if it is none."""
    if not isinstance(store, MemoryStore | AsyncMemoryStore):
        raise InvalidInput(f"is a store of everturn.open or open_async, not {type(store).__name__}", path="store")
    return store


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread, so that the event loop goes on. A cancelled caller waits until it has settled."""
    work = partial(copy_context().run, call, *args, **kwargs)
    # Not asyncio.to_thread: that is a task, and asyncio.run cancels all tasks when it ends; a thread works on.
    return await settled(asyncio.get_running_loop().run_in_executor(None, work))


async def settled(work: Awaitable[T]) -> T:
    """Await it to its end, however often the caller is cancelled meanwhile: then raise the cancellation."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as exc:  # asked again; the answer is the same
            cancelled = exc
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # it is heard of, so that nobody logs it
    raise cancelled


def require(package: str, oldest: tuple[int, ...], adapter: str) -> None:
    """Raises Unsupported, saying what to install, if a framework is not here or too old."""
    advice = f'pip install "everturn[{adapter}]"'
    name = f"everturn.adapters.{adapter.replace('-', '_')}"
    try:
        found = version(package)
    except PackageNotFoundError as exc:
        raise Unsupported(f"{name} needs {package}, which is not installed: {advice}") from exc
    if tuple(map(int, re.findall(r"\d+", found)[: len(oldest)])) < oldest:
        wanted = ".".join(map(str, oldest))
        raise Unsupported(f"{name} needs {package} {wanted} or newer, and {found} is installed: {advice}")
