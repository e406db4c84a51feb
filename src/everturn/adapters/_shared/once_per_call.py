"""once_per_call: a tool whose calls are effects, keyed by the id that the framework gives to each call.

An adapter says how its framework's context names the session and the call. store/effects.py has the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore
from everturn.adapters._shared.sync_async import checked_store, in_thread

Context = TypeVar("Context")
Failures = type[Exception] | tuple[type[Exception], ...]
Tool = Callable[..., Any]
AsyncTool = Callable[..., Coroutine[Any, Any, Any]]


def tool_wrapper(
    store: MemoryStore | AsyncMemoryStore,
    context_type: type[Context],
    name_call: Callable[[Context], tuple[str, str | None]],
    *,
    key: Callable[..., str] | None,
    failures: Failures,
    repeat_in_doubt: bool,
) -> Callable[[Tool], AsyncTool]:
    """Return the decorator. `name_call` returns the session that has the effects, and the id of the call.

    `key`: called with the tool's arguments, returns the key of the effect instead. The wrapped tool raises
    InvalidInput, and does nothing, if it is called without a context or a call id.
    """
    opened = checked_store(store)

    def decorate(tool: Tool) -> AsyncTool:
        name = getattr(tool, "__name__", "tool")
        parameters = signature(tool)

        @wraps(tool)
        async def call_once(*args: Any, **kwargs: Any) -> Any:
            given = parameters.bind(*args, **kwargs).arguments
            session_id, call_id = name_call(_context_of(context_type, name, given))
            effect = key(*args, **kwargs) if key is not None else _key_of(name, call_id)
            told = {each: value for each, value in given.items() if not isinstance(value, context_type)}
            options: dict[str, Any] = {
                # For people, and to notice an id that is used for two calls.
                "request": {"tool": name, "arguments": to_jsonable_python(told, fallback=_type_name)},
                "failures": failures,
                "repeat_in_doubt": repeat_in_doubt,
            }

            async def do() -> Any:
                # As JSON also for this caller: it gets exactly what later ones will find stored.
                return to_jsonable_python(await _called(tool, *args, **kwargs))

            return await _once(opened, session_id, effect, do, options)

        return call_once

    return decorate


async def _once(
    store: MemoryStore | AsyncMemoryStore,
    session_id: str,
    effect: str,
    do: Callable[[], Coroutine[Any, Any, Any]],
    options: dict[str, Any],
) -> Any:
    if isinstance(store, AsyncMemoryStore):
        return await store.once(session_id, effect, do, **options)
    blocking, loop = store, asyncio.get_running_loop()

    def do_in_the_loop() -> Any:
        return asyncio.run_coroutine_threadsafe(do(), loop).result()

    # The thread waits for the tool, which runs in the event loop, as it would without the wrapper.
    return await in_thread(lambda: blocking.once(session_id, effect, do_in_the_loop, **options))


async def _called(tool: Tool, *args: Any, **kwargs: Any) -> Any:
    """Call the tool as frameworks do: a plain function in a thread, so that the event loop goes on."""
    answer: Any | Awaitable[Any]
    if iscoroutinefunction(tool):
        answer = tool(*args, **kwargs)
    else:
        answer = await in_thread(tool, *args, **kwargs)
    return await answer if isawaitable(answer) else answer


def _context_of(kind: type[Context], name: str, given: dict[str, Any]) -> Context:
    for value in given.values():
        if isinstance(value, kind):
            return value
    raise InvalidInput(
        f"was called without a {kind.__name__}: give it a parameter of this type, which names the call. "
        "Nothing was done",
        path=name,
    )


def _key_of(name: str, call_id: str | None) -> str:
    if not call_id:
        raise InvalidInput("this call has no id; pass key=. Nothing was done", path=name)
    return f"{name}:{call_id}"


def _type_name(value: object) -> str:
    return type(value).__name__
