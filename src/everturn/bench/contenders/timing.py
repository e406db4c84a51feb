"""Clocks around calls of a contender: one call after the other, or many tasks at once. Knows no store."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

Turn = TypeVar("Turn")


class Cost(NamedTuple):
    """The cost of one call: seconds on the clock, and processor seconds of this process with all its threads."""

    seconds: float
    processor: float


def costs(call: Callable[[Turn], object], turns: Sequence[Turn]) -> list[Cost]:
    """Call with one turn after the other; the cost of each."""
    taken = []
    for turn in turns:
        start, used = time.perf_counter(), time.process_time()
        call(turn)
        taken.append(Cost(time.perf_counter() - start, time.process_time() - used))
    return taken


async def costs_async(call: Callable[[Turn], Awaitable[object]], turns: Sequence[Turn]) -> list[Cost]:
    """Await one call after the other, in one task; the cost of each."""
    taken = []
    for turn in turns:
        start, used = time.perf_counter(), time.process_time()
        await call(turn)
        taken.append(Cost(time.perf_counter() - start, time.process_time() - used))
    return taken


def timed(append: Callable[[Turn], object], turns: Sequence[Turn]) -> list[float]:
    """Append one turn after the other; the seconds that each took."""
    seconds = []
    for turn in turns:
        start = time.perf_counter()
        append(turn)
        seconds.append(time.perf_counter() - start)
    return seconds


async def timed_async(append: Callable[[Turn], Awaitable[object]], turns: Sequence[Turn]) -> list[float]:
    """Await one append after the other, in one task; the seconds that each took."""
    seconds = []
    for turn in turns:
        start = time.perf_counter()
        await append(turn)
        seconds.append(time.perf_counter() - start)
    return seconds


async def timed_tasks(
    append: Callable[[str, Turn], Awaitable[object]], ids: Sequence[str], turns: Sequence[Turn]
) -> float:
    """Start a task for each session, which appends the turns one after the other; the seconds until all are done."""

    async def one(session_id: str) -> None:
        for turn in turns:
            await append(session_id, turn)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for session_id in ids:
            group.create_task(one(session_id))
    return time.perf_counter() - start
