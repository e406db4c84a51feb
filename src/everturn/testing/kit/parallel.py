"""Works a list off in several lanes at once: half of a quick run is waiting, for locks, time-outs, seconds of a TTL.

What is done with an item is the caller's business. Every lane has servers and a shared place of its own, so that what
a clause does to those is nothing to the clause beside it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from everturn.testing.servers import ServerError

if TYPE_CHECKING:
    from everturn.testing.kit.environment import Run

MANY = 40  # items from which on more lanes are worth the servers they start
MOST = 3

T = TypeVar("T")
Work = Callable[[T, "Run"], bool]
"""Does one item in a lane. Returns whether to go on."""


def work_off(run: Run, items: Sequence[T], work: Work[T]) -> None:
    """Do every item once, or until one says to stop: then what is under way is still done. Raises what work raises.

    A quick run of many has more lanes than one, unless there is but one processor. The first goes through the list from
    its front, the others from its end: neighbours, which share what they need, meet in one lane.
    """
    rest = deque(items)
    stop = Event()
    faults: list[BaseException] = []

    def go(lane: Run, take: Callable[[], T]) -> None:
        while not stop.is_set():
            try:
                item = take()
            except IndexError:  # nothing is left
                return
            if not work(item, lane):
                stop.set()

    def go_beside() -> None:
        try:
            try:
                lane = run.beside()
            except ServerError:
                return  # there is no room for more servers: the other lanes do it all
            go(lane, rest.pop)
        except BaseException as exc:  # noqa: BLE001 - raised below, where somebody waits for it
            faults.append(exc)
            stop.set()

    others = [
        Thread(target=go_beside, name=f"lane {number}", daemon=True) for number in range(2, _lanes(run, items) + 1)
    ]
    for thread in others:
        thread.start()
    try:
        go(run, rest.popleft)
        for thread in others:
            thread.join()
    finally:
        stop.set()  # should this lane be interrupted, the others end when the run is closed under them
    if faults:
        raise faults[0]


def _lanes(run: Run, items: Sequence[object]) -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, processors + 1) if run.quick and len(items) >= MANY and processors > 1 else 1
