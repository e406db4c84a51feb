"""Works through a list in several environments at once. Half of a quick run is waiting: for locks, time-outs, a TTL.

The caller says what is done with an item. Each environment has servers and a shared place of its own, so what one
clause does to them does not disturb the clause beside it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from everturn.testing.servers import ServerError

if TYPE_CHECKING:
    from everturn.testing.kit.environment import Environment

MANY = 40  # items from which on more environments are worth the servers they start
MOST = 3

T = TypeVar("T")
Work = Callable[[T, "Environment"], bool]
"""Does one item in an environment. Returns whether to go on."""


def work_through(environment: Environment, items: Sequence[T], work: Work[T]) -> None:
    """Do every item once, or until `work` says to stop; items under way are then finished. Raises what `work` raises.

    A quick run of many items uses several environments, unless there is only one processor. The first takes items from
    the front of the list and the others from its end, so that neighbours, which share a place, share an environment.
    """
    rest = deque(items)
    stop = Event()
    faults: list[BaseException] = []

    def go(where: Environment, take: Callable[[], T]) -> None:
        while not stop.is_set():
            try:
                item = take()
            except IndexError:  # the list is empty
                return
            if not work(item, where):
                stop.set()

    def go_in_parallel() -> None:
        try:
            try:
                where = environment.parallel()
            except ServerError:
                return  # no room for more servers: the other environments do it all
            go(where, rest.pop)
        except BaseException as exc:  # noqa: BLE001 - raised below, in the thread that waits
            faults.append(exc)
            stop.set()

    others = [
        Thread(target=go_in_parallel, name=f"environment {number}", daemon=True)
        for number in range(2, _how_many(environment, items) + 1)
    ]
    for thread in others:
        thread.start()
    try:
        go(environment, rest.popleft)
        for thread in others:
            thread.join()
    finally:
        stop.set()  # after an interrupt here, the others end when the environment is closed under them
    if faults:
        raise faults[0]


def _how_many(environment: Environment, items: Sequence[object]) -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, processors + 1) if environment.quick and len(items) >= MANY and processors > 1 else 1
