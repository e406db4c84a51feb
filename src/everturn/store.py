"""The blocking face of the store. What the methods do is in engine/; here they are driven without an event loop.

A blocking backend never suspends, so a method's coroutine runs to its end at the first `send`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from everturn.backend import Backend, suspended
from everturn.engine import Engine, Settings

P = ParamSpec("P")
T = TypeVar("T")


class BlockingFace:
    """Time passes by blocking the calling thread."""

    clock = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to block: that is what this face is for

    async def offload(self, think: Callable[[], T]) -> T:
        return think()


def blocking(
    method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[MemoryStore, P], T]:
    """The engine's method as one that blocks, with its signature and its documentation."""

    @functools.wraps(method)
    def call(self: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coroutine = method(self._engine, *args, **kwargs)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # what the method returned
        raise suspended(coroutine)

    return call


class MemoryStore:
    """A durable store of conversations. Made by `everturn.open`; safe to share between threads and across a fork."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._engine = Engine(backend, settings, BlockingFace())

    add_messages = blocking(Engine.add_messages)
    append = blocking(Engine.append)
    replace = blocking(Engine.replace)
    save_context = blocking(Engine.save_context)
    load_memory = blocking(Engine.load_memory)
    get_history = blocking(Engine.get_history)
    add_tool_call = blocking(Engine.add_tool_call)
    get_tool_calls = blocking(Engine.get_tool_calls)
    add_summary = blocking(Engine.add_summary)
    get_summaries = blocking(Engine.get_summaries)
    search_summaries = blocking(Engine.search_summaries)
    save_snapshot = blocking(Engine.save_snapshot)
    list_snapshots = blocking(Engine.list_snapshots)
    delete_snapshot = blocking(Engine.delete_snapshot)
    rollback_to_snapshot = blocking(Engine.rollback_to_snapshot)
    undo = blocking(Engine.undo)
    diff = blocking(Engine.diff)
    fork = blocking(Engine.fork)
    trim = blocking(Engine.trim)
    clear = blocking(Engine.clear)
    clear_all = blocking(Engine.clear_all)
    erase = blocking(Engine.erase)
    state = blocking(Engine.state)
    info = blocking(Engine.info)
    changes = blocking(Engine.changes)
    sessions = blocking(Engine.sessions)
    find = blocking(Engine.find)
    set_ttl = blocking(Engine.set_ttl)
    verify = blocking(Engine.verify)
    compact = blocking(Engine.compact)
    close = blocking(Engine.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine_of(store: MemoryStore) -> Engine:
    """For what works on two stores at once. Everyone else calls the methods."""
    return store._engine  # noqa: SLF001 - this is its module
