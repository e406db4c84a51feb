"""Lists sessions, and searches their text.

The names of all sessions of a namespace are items under one `pk`, in byte order; a name is written and removed in the
transaction that begins or ends its session. So a list by name does not lag. A list by recency reads every head.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from everturn.backend import EntryRow, Order, Where, has_facts
from everturn.backends._shared import paging
from everturn.backends.dynamodb.log_reader import LogReader, clipped
from everturn.backends.dynamodb.plan_facts import hidden_summaries
from everturn.backends.dynamodb.stored_form import HEAD, Head, names_key, sk_of
from everturn.backends.dynamodb.table import Table, read_head
from everturn.core.paths import minus, reach
from everturn.model import SUMMARY, Page

HIGHEST = "\U0010ffff" * 128  # behind every session id: 512 bytes, as many as an id can have
AT_ONCE = 100


async def heads(
    table: Table, now: float, deadline: float, prefix: str = "", after: str = "", most: int = AT_ONCE
) -> AsyncIterator[list[Head]]:
    """Yield the heads of living sessions by name, about `most` at a time."""
    low, high = (prefix, prefix + HIGHEST) if prefix else (None, None)
    start = after if after and after.encode() >= prefix.encode() else None
    pages = table.pages(names_key(table.namespace), low, high, deadline, limit=most, after=start, only="sk")
    async for page in pages:
        names = [sk_of(item) for item in page]
        found = await table.get_many([(table.key_of(name), HEAD) for name in names], deadline)
        stored = [read_head(name, found.get((table.key_of(name), HEAD))) for name in names]
        for name, head in zip(names, stored, strict=True):
            if head is None:
                await table.look_again(name, deadline)
        living = [each.living(now) for each in stored if each is not None]
        yield [head for head in living if head is not None]


async def sessions(
    table: Table,
    prefix: str,
    limit: int,
    page: str | None,
    order: Order,
    now: float,
    deadline: float,
    where: Where | None = None,
) -> Page:
    """List a page of sessions (Backend.sessions). With `where`, each session is looked at."""
    token = paging.token_of(page, order)
    if order == "recent" and token.is_first:
        token = paging.begun(token, now)
    found: list[Head] = []
    if token.by_change:
        async for some in heads(table, now, deadline, prefix):
            found += (head for head in some if has_facts(head.facts, where or {}))
        bound = (token.bound, token.session_id.encode())
        found = [head for head in found if token.is_first or (head.changed_at, head.session_id.encode()) < bound]
        found.sort(key=lambda head: (head.changed_at, head.session_id.encode()), reverse=True)
    else:
        async for some in heads(table, now, deadline, prefix, token.session_id, min(limit, AT_ONCE)):
            listed = (head for head in some if head.changed_at >= token.bound)
            found += (head for head in listed if has_facts(head.facts, where or {}))
            if len(found) >= limit:
                break
    return paging.page_of([msgspec.structs.astuple(head.info) for head in found[:limit]], token, limit)


async def find(
    table: Table, session_id: str | None, take: Callable[[str, EntryRow], bool], now: float, deadline: float
) -> None:
    """Hand over every visible entry, newest first: `take` looks closer (Backend.find)."""
    if session_id is not None:
        stored = await table.head(session_id, deadline)
        head = stored.living(now) if stored else None
        if head is not None:
            await _find_in(LogReader(table, head, deadline), take)
        return
    async for some in heads(table, now, deadline):
        for head in some:
            if not await _find_in(LogReader(table, head, deadline), take):
                return


async def _find_in(log: LogReader, take: Callable[[str, EntryRow], bool]) -> bool:
    """Hand over the entries of one session. False: `take` has enough."""
    state = log.head.state
    ranges = reach([state], await log.jumps()).whole
    for first, last in reversed(clipped(ranges, 1, state.head)):
        there: list[tuple[int, int]] = []
        async for page in log.blocks_back(first, last, 200):
            for row in reversed(await log.rows(reversed(page), first, last)):
                there.append((row[0], row[0]))
                if not take(log.head.session_id, row):
                    return False
        if lost := minus([(first, last)], there[::-1]):
            await log.settle_entry(lost[0][0])
            raise ValueError(f"not all entries from {first} to {last} are there")
    hidden = await hidden_summaries(log, state) if state.cleared < state.floor else []
    rows = [row for row in await log.entries(hidden) if row[4] == SUMMARY]
    return all(take(log.head.session_id, row) for row in reversed(rows))
