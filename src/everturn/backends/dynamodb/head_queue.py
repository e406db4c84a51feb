"""The queue of a session: a change that lost to others for a while is let go first, so that its wait is bounded.

The queue is a list in the head's item, `waiting`. One request adds a place at its end, whatever others write meanwhile.
A change is written on the condition that the queue is empty, or that it is the first there. It is a courtesy and no
lock: nothing that is stored hangs on it, and a place whose process has died is passed over.
"""

from __future__ import annotations

import random
import time
from os import urandom
from typing import Any

from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.stored_form import HEAD, StoredHead
from everturn.backends.dynamodb.table import IS_THERE, Table, read_head

FIRST_PAUSE = 0.016  # seconds, at most, after the second loss
PAUSE = 60, 0.05, 0.3  # after the third one: times of a round trip; and at least, and at most, so many seconds
LONGEST_WAIT = 0.2  # between attempts at a table that has no capacity
LOOK = 1.5, 0.002, 0.1  # between two looks at the queue, for each place before this one: as PAUSE
STANDS = 20, 0.3, 2.0  # until the first of a queue that does nothing is passed over: as PAUSE
MOST = 64  # places in a queue
QUEUED_AFTER = 3  # losses


class QueuePlace:
    """The place of one change among those that write to the same session."""

    def __init__(self, table: Table, session_id: str, deadline: float) -> None:
        self.name = ""  # in the queue, if it is there
        self._losses = self._refusals = 0
        self._trip = 0.0  # seconds that a request takes, about
        self._table = table
        self._session_id = session_id
        self._deadline = deadline
        self._begun = time.monotonic()
        self._first = ("", 0.0)  # the first of the queue, and since when it has been seen there

    async def next_head(self, stored: StoredHead | None) -> StoredHead | None:
        """Wait until the change may be tried again, after another was first, whose head is `stored`.

        Returns the head to plan it on. Raises MemoryStoreBackendError if that is not before the deadline.
        """
        if not self._losses:
            self._trip = time.monotonic() - self._begun
        self._losses += 1
        if self._losses == 1 and not _is_queue(stored):
            return stored
        if self._losses < QUEUED_AFTER and not _is_queue(stored):
            await self._pause(random.uniform(0, FIRST_PAUSE))  # noqa: S311 - no secret
            stored = await self._head()
            if not _is_queue(stored):
                return stored
        if not self.name:
            await self._pause(random.uniform(0.5, 1) * self._times(*PAUSE))  # noqa: S311
            stored = await self._enter()
        return await self._in_turn(stored)

    async def later_head(self) -> StoredHead | None:
        """Wait until a change may be tried again that the table had no capacity for."""
        self._refusals += 1
        await self._pause(random.uniform(0, min(0.004 * 2**self._refusals, LONGEST_WAIT)))  # noqa: S311
        return await self._head()

    async def _in_turn(self, stored: StoredHead | None) -> StoredHead | None:
        """Wait until the change is the first of the queue."""
        while stored is not None and _is_queue(stored):
            if self.name not in stored.waiting:  # it was passed over
                if len(stored.waiting) < MOST:
                    stored = await self._enter()
                    continue
                before = MOST
            else:
                before = stored.waiting.index(self.name)
            if before == 0:
                break
            await self._pass_over(stored.waiting[0])
            await self._pause(min(before, 8) * self._times(*LOOK))
            stored = await self._head()
        return stored  # others may have written the head as a whole, and the queue with it

    def _times(self, trips: float, least: float, most: float) -> float:
        return min(max(trips * self._trip, least), most)

    async def _head(self) -> StoredHead | None:
        return await self._table.head(self._session_id, self._deadline)

    async def _enter(self) -> StoredHead | None:
        self.name = urandom(6).hex()
        values = {":place": {"L": [{"S": self.name}]}, ":none": {"L": []}}
        return await self._change("SET waiting = list_append(if_not_exists(waiting, :none), :place)", IS_THERE, values)

    async def _pass_over(self, first: str) -> None:
        """Take the first out of the queue if it has stood there for too long: its process may have died."""
        if self._first[0] != first:
            self._first = (first, time.monotonic())
        elif time.monotonic() - self._first[1] > self._times(*STANDS):
            await self._change("REMOVE waiting[0]", "waiting[0] = :first", {":first": {"S": first}})

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
