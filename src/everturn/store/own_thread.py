"""Runs a function in a thread of its own, for an asynchronous store. It knows neither stores nor backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """Run a function in a new thread, and wait for it. An error is raised as it is.

    Not asyncio.to_thread: the few threads of the loop may all be taken by calls to a model, the caller's or a fold's,
    and whoever only wants to plan a prompt would wait for those.
    """
    from asyncio import get_running_loop
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    errors: list[BaseException] = []

    def kept() -> T | None:
        try:
            return work()
        except BaseException as exc:  # noqa: BLE001 - raised below: a future refuses to hold a StopIteration, and never ends
            errors.append(exc)
            return None

    thread = ThreadPoolExecutor(1, thread_name_prefix="everturn-work")
    try:
        result = await get_running_loop().run_in_executor(thread, copy_context().run, kept)
    finally:
        thread.shutdown(wait=False)
    if errors:
        raise errors.pop()
    return result  # type: ignore[return-value]  # it is None only where work() returned None
