"""The queue of a session: a change that lost to others is let go first, so that its wait is bounded.

The queue is a list in the head's item, `waiting`. One request adds a place at its end, whatever others write meanwhile.
A change is written on the condition that the queue is empty, or that it is the first there. It is a courtesy and no
lock: nothing that is stored hangs on it, and a place whose process has died is passed over.

A process that writes one change after the other keeps its place for a few of them, as a *run*: so the requests that
waiting costs are shared by several turns (docs/decisions/080-dynamodb-queue.md).
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from os import urandom
from typing import Any

import msgspec

from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.stored_form import HEAD, StoredHead
from everturn.backends.dynamodb.table import IS_THERE, Table, read_head
from everturn.errors import MemoryStoreBackendError

RUNNING = "*"  # behind the name of a place that has been kept, and before the number of turns it may still write
TO_RUN = "+"  # behind the name of a place that will be kept
RUN_TURNS, LEAST_TURNS, RUN_SECONDS = 16, 6, 0.3  # of all runs of a queue together; of one; how long one goes on
STANDS = 40, 0.5, 2.0  # until a first that does nothing is passed over: times of a round trip; at least, at most (s)
RESTS = 6, 0.02, 0.5  # the same, if it is one whose process may simply have no more to write
LONGEST_LOOK = 30, 0.3, 1.0  # between two looks at the queue: half of STANDS, so that nobody sleeps through its turn
LEAST_LOOK = 0.002
NEXT_LOOK = 3
NOTICED = 3  # round trips from the end of a run until the next place has noticed, and written
EARLY = 1.0
LONGEST_WAIT = 0.2  # between attempts at a table that has no capacity
MOST = 64  # places in a queue
MEMORIES = 4096


class Memory(msgspec.Struct):
    """Memory that one process has of a session that others write, too. All of it may be wrong."""

    name: str = ""  # its place in the queue, if it is still there
    turns: int = 0  # written at that place, since `begun`
    begun: float = 0.0
    ended: float = 0.0  # the moment its latest change ended
    trip: float = 0.0  # seconds that a request takes, about
    wrote: float = 0.0  # the moment of its latest write
    pace: float = 0.0  # seconds between two writes of a run, about
    has_rival: bool = False  # the first that was waited for last writes one change after the other: it will be back


class Move(msgspec.Struct, frozen=True, gc=False):
    """A write of a head by the first of its queue: its `place`; the name to `keep` it by ("": it is left); and the
    queue behind the write."""

    place: str = ""
    keep: str = ""
    waiting: tuple[str, ...] = ()


class Memories:
    """The memories of a process, by session. A session is touched by one change of the process at a time, mostly."""

    def __init__(self) -> None:
        self._memories: OrderedDict[str, Memory] = OrderedDict()

    def of(self, pk: str) -> Memory:
        """Return the memory of a session."""
        found = self._memories.setdefault(pk, Memory())
        with suppress(KeyError):  # another thread dropped some meanwhile
            self._memories.move_to_end(pk)
            while len(self._memories) > MEMORIES:
                self._memories.popitem(last=False)
        return found

    def forget(self) -> None:
        """Begin anew in the child of an os.fork: the places are its parent's."""
        self._memories = OrderedDict()


class QueuePlace:
    """The place of one change among those that write to the same session."""

    def __init__(self, table: Table, session_id: str, deadline: float, memory: Memory | None = None) -> None:
        self._memory = Memory() if memory is None else memory
        self._losses = self._refusals = 0
        self._latest: StoredHead | None = None  # head that was seen
        self._table = table
        self._session_id = session_id
        self._deadline = deadline
        # The change before this one ended just now: there will be another one behind it.
        self._is_run = time.monotonic() - self._memory.ended <= max(self._memory.trip, 2 * LEAST_LOOK)

    def is_held_up(self, stored: StoredHead | None) -> bool:
        """Say whether a write of this head would be refused, because another is the first of the queue."""
        return self._index(stored) != 0 and _is_queue(stored)

    def move(self, stored: StoredHead | None, *, may_stay: bool = False) -> Move:
        """Say what a write of this head does to the queue.

        The place is left. With `may_stay` it is kept for the next change of a run, while others wait, or will at once.
        """
        if stored is None or self._index(stored) < 0:
            return Move()
        memory, name, waiting = self._memory, self._memory.name, stored.waiting
        left = _turns_of_a_run(waiting) - memory.turns - 1
        is_over = left <= 0 or (memory.turns > 0 and time.monotonic() - memory.begun > RUN_SECONDS)
        if not (may_stay and self._is_run and (len(waiting) > 1 or memory.has_rival)) or is_over:
            return Move(name, "", waiting[1:])
        kept = f"{_base(name)}{RUNNING}{left}"
        return Move(name, kept, (kept, *waiting[1:]))

    def written(self, move: Move) -> None:
        """Note that a write was applied."""
        memory, now = self._memory, time.monotonic()
        if memory.turns:
            memory.pace = _usual(memory.pace, now - memory.wrote)
        elif move.keep:
            memory.begun = now
        memory.wrote = now
        memory.name, memory.turns = move.keep, (memory.turns + 1 if move.keep else 0)
        self._latest = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Leave the queue at the end, unless the place was kept by a write, or one may have been applied."""
        try:
            yield
        except BaseException as exc:  # also a task that is cancelled: others would wait for its place
            if getattr(exc, "outcome", "") != "unknown":
                self._leave()
            raise
        self._leave()
        self._memory.ended = time.monotonic()

    async def next_head(self, stored: StoredHead | None) -> StoredHead | None:
        """Wait until the change may be tried again, after another was first, whose head is `stored`.

        Returns the head to plan it on. Raises MemoryStoreBackendError if that is not before the deadline.
        """
        self._losses += 1
        if stored is None or (self._losses == 1 and not _is_queue(stored)):
            return stored
        return await self._in_turn(stored if self._index(stored) >= 0 else await self._enter())

    async def head_after_conflict(self) -> StoredHead | None:
        """Wait for a transaction of another that is under way, then as `next_head` does."""
        self._refusals += 1
        await self._pause(self._backed_off(max(self._memory.trip, LEAST_LOOK)))
        return await self.next_head(await self._head())

    async def later_head(self) -> StoredHead | None:
        """Wait until a change may be tried again that the table had no capacity for."""
        self._refusals += 1
        await self._pause(self._backed_off(2 * LEAST_LOOK))
        return await self._head()

    def _leave(self) -> None:
        """Leave the queue without a write: nobody is to wait for this change. If it goes wrong, others pass over."""
        stored = self._latest
        if stored is not None and self._index(stored) >= 0:
            name, self._memory.name, self._memory.turns = self._memory.name, "", 0
            with suppress(MemoryStoreBackendError):  # the store is closed
                self._table.leave_queue(self._table.key_of(self._session_id), name, stored.waiting)

    async def _in_turn(self, stored: StoredHead | None) -> StoredHead | None:
        """Wait until the change is the first of the queue."""
        since = time.monotonic()
        seen: tuple[str, bytes] | None = None
        looks = 0  # since the first has done anything
        self._memory.has_rival = False
        while stored is not None and _is_queue(stored):
            at = self._index(stored)
            if at == 0:
                break
            if at < 0:  # it was passed over
                if len(stored.waiting) < MOST:
                    stored = await self._enter()
                    continue
                at = MOST
            now = time.monotonic()
            first = stored.waiting[0]
            is_running = RUNNING in first
            self._memory.has_rival = is_running or first.endswith(TO_RUN)
            stands = self._times(*(RESTS if is_running else STANDS))
            tag = stored.tag if is_running else b""  # a run goes on if it writes
            if seen != (first, tag):
                seen, since, looks = (first, tag), now, 0
            elif now - since >= stands:
                self._memory.has_rival = False
                stored = await self._pass_over(first, tag)
                continue
            wait = EARLY * self._until_first(at, stored.waiting)
            if looks:
                longer = min(2**looks, NEXT_LOOK if at == 1 else 2**looks)  # whoever is next lets nobody behind it wait
                wait = min(max(wait, self._memory.trip * longer), since + stands - now)
            await self._pause(min(max(wait, LEAST_LOOK), self._times(*LONGEST_LOOK)))
            looks += 1
            stored = await self._head()
        self._latest = stored
        return stored  # others may have written the head as a whole, and the queue with it

    def _until_first(self, at: int, waiting: Sequence[str]) -> float:
        """Estimate the seconds until the places before this one have written their runs, and each has noticed."""
        trip, pace = self._memory.trip, self._memory.pace or self._memory.trip
        run = _turns_of_a_run(waiting)
        turns = sum(_turns_of(name, run) for name in waiting[:at])
        return turns * pace + (at - 1) * NOTICED * trip

    def _index(self, stored: StoredHead | None) -> int:
        """Find the place of this process in the queue of a head; -1 if it is not there."""
        self._latest = stored
        mine = _base(self._memory.name)
        for at, name in enumerate(stored.waiting if stored is not None and mine else ()):
            if _base(name) == mine:
                self._memory.name = name
                return at
        return -1

    def _times(self, trips: float, least: float, most: float) -> float:
        return min(max(trips * self._memory.trip, least), most)

    def _backed_off(self, seconds: float) -> float:
        return random.uniform(0, min(seconds * 2**self._refusals, LONGEST_WAIT))  # noqa: S311 - no secret

    async def _head(self) -> StoredHead | None:
        begun = time.monotonic()
        stored = await self._table.head(self._session_id, self._deadline)
        self._memory.trip = _usual(self._memory.trip, time.monotonic() - begun)
        return stored

    async def _enter(self) -> StoredHead | None:
        memory = self._memory
        memory.name, memory.turns = urandom(6).hex() + (TO_RUN if self._is_run else ""), 0
        if self._latest is not None:  # as it will be: a task that is cancelled meanwhile leaves the place again
            self._latest = msgspec.structs.replace(self._latest, waiting=(*self._latest.waiting, memory.name))
        values = {":place": {"L": [{"S": memory.name}]}, ":none": {"L": []}}
        begun = time.monotonic()
        stored = await self._change(
            "SET waiting = list_append(if_not_exists(waiting, :none), :place)", IS_THERE, values
        )
        memory.trip = _usual(memory.trip, time.monotonic() - begun)
        return stored

    async def _pass_over(self, first: str, tag: bytes) -> StoredHead | None:
        """Take the first out of the queue; with a tag, only if it has not written meanwhile."""
        values = {":first": {"S": first}, **({":tag": {"B": tag}} if tag else {})}
        condition = "waiting[0] = :first" + (" AND tag = :tag" if tag else "")
        return await self._change("REMOVE waiting[0]", condition, values)

    async def _change(self, expression: str, condition: str, values: dict[str, Any]) -> StoredHead | None:
        """Change the queue, and nothing else of the head. Returns the head; None if there is none."""
        table = self._table
        key = (table.key_of(self._session_id), HEAD)
        try:
            item = await table.update(key, expression, condition, values, self._deadline)
        except errors.ConditionNotMet as exc:
            item = exc.items[0]
        return read_head(self._session_id, item)

    async def _pause(self, seconds: float) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise errors.contended(self._table.client.name)
        await self._table.client.sleep(min(seconds, left / 2))


def _is_queue(stored: StoredHead | None) -> bool:
    return stored is not None and bool(stored.waiting)


def _base(name: str) -> str:
    """Return the name of a place without what it says of its run."""
    return name.partition(RUNNING)[0].partition(TO_RUN)[0]


def _turns_of(name: str, run: int) -> int:
    """Return how many turns a place will write, as far as its name says. `run`: those of a run that begins now."""
    _, is_running, left = name.partition(RUNNING)
    if is_running:
        return int(left) if left.isdigit() else run
    return run if name.endswith(TO_RUN) else 1


def _turns_of_a_run(waiting: Sequence[str]) -> int:
    return max(LEAST_TURNS, RUN_TURNS // max(2, len(waiting)))


def _usual(known: float, seconds: float) -> float:
    """Learn how long something takes. A long one counts little: who expects too much sleeps through its turn."""
    return min(seconds, known + (seconds - known) / 8) if known else seconds
