"""One way to call a store for every adapter: as an AsyncMemoryStore, whether the caller's store blocks or is awaited.

An adapter writes each of its methods once, as a coroutine that awaits methods of an `AsyncMemoryStore`:

    await self._store.append(session_id, entries, expected_version=state)

Over an `AsyncMemoryStore` that is the store itself. Over a `MemoryStore` it is a proxy with the same methods:
`CalledAtOnce` for adapters that go through `CallRunner`, `CalledInThread` for those that only await.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ParamSpec, TypeVar, cast

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore, Unsupported

P = ParamSpec("P")
T = TypeVar("T")

# The proxies forward by name, so that a new method of the store needs nothing here. Type checkers see AsyncMemoryStore.


class CalledAtOnce:
    """Proxy of a MemoryStore: its methods are coroutines that call the store at once and never suspend."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(_at_once, getattr(self._store, name))


async def _at_once(method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return method(*args, **kwargs)


class CalledInThread:
    """Proxy of a MemoryStore: its methods are coroutines that call the store in a thread, so the event loop goes on."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(in_thread, getattr(self._store, name))


def awaited_in_thread(store: MemoryStore | AsyncMemoryStore) -> AsyncMemoryStore:
    """Return the store as one to await. A blocking store is called in a thread. Raises InvalidInput if it is no store.

    A caller that is cancelled waits until its call has settled, over either kind of store.
    """
    checked = checked_store(store)
    return checked if isinstance(checked, AsyncMemoryStore) else cast("AsyncMemoryStore", CalledInThread(checked))


class CallRunner:
    """Runs an adapter's coroutines for frameworks whose methods exist twice, blocking and awaited.

    The coroutines await methods of `store`. Over a `MemoryStore` they never suspend: `run_blocking` runs them in the
    calling thread, `run_async` in another one. Over an `AsyncMemoryStore` `run_async` awaits them, and `run_blocking`
    hands them to the store's event loop from another thread.
    """

    def __init__(self, store: MemoryStore | AsyncMemoryStore, adapter: str) -> None:
        checked = checked_store(store)
        self._adapter = adapter
        self._blocking = checked if isinstance(checked, MemoryStore) else None
        self.store = (
            checked if isinstance(checked, AsyncMemoryStore) else cast("AsyncMemoryStore", CalledAtOnce(checked))
        )
        self._loop = _running_loop()  # of an asynchronous store; else set by the first run_async

    @property
    def is_blocking(self) -> bool:
        """Whether the caller's store is a MemoryStore."""
        return self._blocking is not None

    def _needs_a_loop(self) -> Unsupported:
        return Unsupported(
            f"this {self._adapter} is over an AsyncMemoryStore: use its async methods, call the blocking ones "
            "from another thread while its event loop runs, or use everturn.open"
        )

    def run_blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Over an AsyncMemoryStore its event loop does so, while this thread waits.

        Raises Unsupported in the loop's own thread, which would wait for itself, and if the loop does not run.
        """
        if self._blocking is None:
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

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine. Over a MemoryStore it runs in a thread, so that the event loop goes on."""
        if self._loop is None:
            self._loop = _running_loop()
        return await (coroutine if self._blocking is None else in_thread(self.run_blocking, coroutine))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def checked_store(store: MemoryStore | AsyncMemoryStore) -> MemoryStore | AsyncMemoryStore:
    """Return the store. Raises InvalidInput if it is no store of everturn."""
    if not isinstance(store, MemoryStore | AsyncMemoryStore):
        raise InvalidInput(
            f"must be a store from everturn.open(...) or open_async(...), not a {type(store).__name__}", path="store"
        )
    return store


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call in a thread, so that the event loop goes on. A cancelled caller waits until the call has settled."""
    work = partial(copy_context().run, call, *args, **kwargs)
    # Not asyncio.to_thread: that is a task, and asyncio.run cancels all tasks when it ends; a thread works on.
    return await settled(asyncio.get_running_loop().run_in_executor(None, work))


async def settled(work: Awaitable[T]) -> T:
    """Await work to its end, however often the caller is cancelled meanwhile. Then raise the cancellation."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as exc:  # wait on: the change may still land
            cancelled = exc
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # retrieved, so that asyncio does not log it
    raise cancelled


def require(package: str, oldest: tuple[int, ...], adapter: str) -> None:
    """Check that a framework is installed. Raises Unsupported, with the pip command, if it is missing or too old."""
    advice = f'pip install "everturn[{adapter}]"'
    name = f"everturn.adapters.{adapter.replace('-', '_')}"
    try:
        found = version(package)
    except PackageNotFoundError as exc:
        raise Unsupported(f"{name} needs {package}, which is not installed: {advice}") from exc
    if tuple(map(int, re.findall(r"\d+", found)[: len(oldest)])) < oldest:
        wanted = ".".join(map(str, oldest))
        raise Unsupported(f"{name} needs {package} {wanted} or newer, and {found} is installed: {advice}")
