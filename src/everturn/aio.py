"""The asynchronous face of the store: the same methods, awaited. What they do is in engine/.

asyncio is imported when a store is made, not before: most programs that import everturn need only one face.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from everturn.backend import Backend
from everturn.engine import Engine, Settings
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

P = ParamSpec("P")
T = TypeVar("T")


class LoopFace:
    """Time passes while the event loop goes on with other work."""

    clock = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        from asyncio import sleep

        await sleep(seconds)

    async def offload(self, think: Callable[[], T]) -> T:
        from asyncio import to_thread

        return await to_thread(think)


def awaited(
    method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncMemoryStore, P], Coroutine[Any, Any, T]]:
    """The engine's method, refused in a loop that is not the store's own."""

    @functools.wraps(method)
    async def call(self: AsyncMemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_other_loops()
        return await method(self._engine, *args, **kwargs)

    return call


class AsyncMemoryStore:
    """A durable store of conversations. Made by `await everturn.open_async`; belongs to the loop it was made in."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        from asyncio import get_running_loop

        self._engine = Engine(backend, settings, LoopFace())
        self._running_loop: Callable[[], AbstractEventLoop] = get_running_loop
        self._loop = get_running_loop()

    def _refuse_other_loops(self) -> None:
        if self._running_loop() is not self._loop:
            raise InvalidInput(
                "belongs to the event loop it was opened in, and this is another; open one in each loop",
                path="store",
            )

    add_messages = awaited(Engine.add_messages)
    append = awaited(Engine.append)
    replace = awaited(Engine.replace)
    save_context = awaited(Engine.save_context)
    load_memory = awaited(Engine.load_memory)
    get_history = awaited(Engine.get_history)
    add_tool_call = awaited(Engine.add_tool_call)
    get_tool_calls = awaited(Engine.get_tool_calls)
    add_summary = awaited(Engine.add_summary)
    get_summaries = awaited(Engine.get_summaries)
    search_summaries = awaited(Engine.search_summaries)
    save_snapshot = awaited(Engine.save_snapshot)
    list_snapshots = awaited(Engine.list_snapshots)
    delete_snapshot = awaited(Engine.delete_snapshot)
    rollback_to_snapshot = awaited(Engine.rollback_to_snapshot)
    undo = awaited(Engine.undo)
    diff = awaited(Engine.diff)
    fork = awaited(Engine.fork)
    trim = awaited(Engine.trim)
    clear = awaited(Engine.clear)
    clear_all = awaited(Engine.clear_all)
    erase = awaited(Engine.erase)
    state = awaited(Engine.state)
    info = awaited(Engine.info)
    changes = awaited(Engine.changes)
    sessions = awaited(Engine.sessions)
    find = awaited(Engine.find)
    set_ttl = awaited(Engine.set_ttl)
    verify = awaited(Engine.verify)
    compact = awaited(Engine.compact)
    close = awaited(Engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def engine_of(store: AsyncMemoryStore) -> Engine:
    """For what works on two stores at once. Everyone else calls the methods. Refused in another loop, as they are."""
    store._refuse_other_loops()  # noqa: SLF001 - this is its module
    return store._engine  # noqa: SLF001
