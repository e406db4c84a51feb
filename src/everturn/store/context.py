"""Context: the prompt for a model, read from the newest message backwards, and no further than the bounds allow.

The pages are of one state, as those of a trim are. If the session moves on so that they do not fit together, it is read
again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from everturn.backend import At, Query, Reading, Status
from everturn.core import prompts
from everturn.core.tool_calls import SYSTEM_ROLES
from everturn.core.trimming import Header, TrimPlanner, counted, header
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.events import Source
from everturn.model import MESSAGE, SUMMARY, ChatMessage, Context, Snapshot, Summary
from everturn.store import pages
from everturn.store.arguments import checked_at, checked_id, checked_limit
from everturn.store.entry_reader import EntryReader
from everturn.store.healed_prompts import healed
from everturn.store.pages import MessagePage, PagedReads, refuse_absent_state

FEWEST = 16  # messages of a first page
FIRST_WINDOW = 16  # seqs that are looked at first for system messages and summaries; then eight times as many
USUAL_TOKENS, USUAL_BYTES = 50, 250  # of a short message, to guess how many will fit: a second page costs more


class ContextBounds(msgspec.Struct, frozen=True):
    """Bounds of a context, and the function that counts its tokens."""

    max_messages: int | None
    max_tokens: int | None
    max_bytes: int | None
    count_tokens: Callable[[ChatMessage], int]

    @property
    def first_page(self) -> int:
        """Guess how many of the newest messages will do: one more than fit, which shows that they do not."""
        guesses = [] if self.max_messages is None else [self.max_messages + 1]
        if self.max_tokens is not None:
            guesses.append(max(FEWEST, self.max_tokens // USUAL_TOKENS + 1))
        if self.max_bytes is not None:
            guesses.append(max(FEWEST, self.max_bytes // USUAL_BYTES + 1))
        return min([*guesses, pages.FIRST_PAGE])

    def header(self, message: ChatMessage, turn: int, *, counts: bool = True) -> Header:
        """Make the header of a message, with its tokens and bytes as far as a bound needs them."""
        tokens = counted(self.count_tokens, message) if counts and self.max_tokens is not None else 0
        size = prompts.size_of(message) if counts and self.max_bytes is not None else 0
        return header(message, turn, tokens, size)


class ContextOperations(PagedReads):
    """The method `get_context`."""

    async def get_context(
        self,
        session_id: str,
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        at: Snapshot | str | int | None = None,
        heal: bool = True,
    ) -> Context:
        """Read a prompt for a model: system messages, the summaries that stand for hidden turns, the newest turns.

        The turns are as many as fit, always the last one, and never without the call of a tool's result. It reads no
        more than it needs: system messages are those at the beginning, those that a trim or fold kept, and those among
        the turns read.
        """
        bounds = ContextBounds(
            checked_limit(max_messages, "max_messages"),
            checked_limit(max_tokens, "max_tokens"),
            checked_limit(max_bytes, "max_bytes"),
            checked_counter(count_tokens),
        )
        session_id, moment = checked_id(session_id), checked_at(at)
        deadline = self.runtime.clock() + self.settings.timeout
        while True:
            found = await self._context(session_id, moment, bounds, deadline)
            if found is not None:
                messages, left_out, summaries, reading = found
                return await self.runtime.offload(
                    partial(_context_of, messages, left_out, summaries, reading, bounds, self.source if heal else None)
                )
            if self.runtime.clock() >= deadline:
                raise MemoryStoreBackendError(
                    f"session {session_id!r}: its head was moved again and again while it was read",
                    outcome="not_written",
                )

    async def _context(
        self, session_id: str, at: At, bounds: ContextBounds, deadline: float
    ) -> tuple[list[ChatMessage], int, tuple[Summary, ...], Reading] | None:
        """Read a context, before it is healed. None if the pages do not fit together."""
        page = await self._page(Query(session_id, at=at, limit=bounds.first_page), deadline)
        reading, session = page.reading, page.reading.session
        refuse_absent_state(page.query, reading)
        if session is None:
            return [], 0, (), reading
        seen, pinned = reading.state, session.version if at is None else at
        parts = StateParts(self, session_id, pinned, reading, deadline)
        summaries = await parts.summaries(page)
        leading = await parts.leading(page)
        if summaries is None or leading is None:
            return None
        planner = TrimPlanner(
            floor=seen.floor,
            max_messages=bounds.max_messages,
            max_tokens=bounds.max_tokens,
            max_bytes=bounds.max_bytes,
            keep_system=True,
        )
        for message in (*map(prompts.summary_message, summaries), *leading):
            planner.reserve(bounds.header(message, 0))
        messages: list[ChatMessage] = []
        size = bounds.first_page
        while True:
            await self.runtime.offload(partial(_tell, page, planner, bounds))
            messages[:0] = page.messages
            if not (page.has_more and planner.wants_calls):
                break
            size = min(4 * size, pages.LARGEST_PAGE)
            page = await self._page(page.next_query(session_id, None, pinned, size), deadline)
            if not is_of(page.reading, reading):
                return None
        cut = planner.cut(seen.messages if page.has_more else None)
        low = 0 if cut is None else cut.floor
        rest = {message.seq for message in messages}
        front = [message for message in leading if message.seq not in rest]
        front += [m for m in messages if (m.seq or 0) <= low and m.role in SYSTEM_ROLES]
        turns = [message for message in messages if (message.seq or 0) > low]
        while turns and turns[0].role in SYSTEM_ROLES:
            front.append(turns.pop(0))
        shown = front + list(map(prompts.summary_message, summaries)) + turns
        return shown, seen.messages - len(front) - len(turns), summaries, reading


def _context_of(
    messages: list[ChatMessage],
    left_out: int,
    summaries: tuple[Summary, ...],
    reading: Reading,
    bounds: ContextBounds,
    healing_for: Source | None,
) -> Context:
    if healing_for is not None:
        messages = healed(messages, healing_for)
    tokens = sum(counted(bounds.count_tokens, message) for message in messages)
    life, version = (reading.session.life, reading.session.version) if reading.session else ("", 0)
    return Context(messages, tokens, left_out, summaries, life, version)


def _tell(page: MessagePage, planner: TrimPlanner, bounds: ContextBounds) -> None:
    """Tell the planner of the messages of a page, newest first."""
    turns = page.turns or []
    is_counted = bounds.max_tokens is not None or bounds.max_bytes is not None
    for message, turn in zip(reversed(page.messages), reversed(turns), strict=True):
        counts = is_counted and (planner.counts_tokens or message.role in SYSTEM_ROLES)
        planner.add(bounds.header(message, turn, counts=counts))


def checked_counter(count_tokens: Callable[[ChatMessage], int] | None) -> Callable[[ChatMessage], int]:
    """Check a counter of tokens; None stands for the estimate. Raises InvalidInput."""
    if count_tokens is None:
        return prompts.estimate_tokens
    if not callable(count_tokens):
        raise InvalidInput(
            f"is a function from a message to its number of tokens, not {type(count_tokens).__name__}",
            path="count_tokens",
        )
    return count_tokens


def is_of(reading: Reading, first: Reading) -> bool:
    """Whether a later page is of the state that the first page was of."""
    now, then = reading.session, first.session
    return now is not None and then is not None and now.life == then.life and reading.state == first.state


class StateParts:
    """The parts of a state that stand before its turns: system messages at its beginning, and summaries."""

    def __init__(self, reads: PagedReads, session_id: str, at: At, first: Reading, deadline: float) -> None:
        self._reads = reads
        self._session_id = session_id
        self._at = at
        self._first = first
        self._state = first.state
        self._deadline = deadline

    async def leading(self, page: MessagePage) -> list[ChatMessage] | None:
        """Read the system messages that a trim kept, and those at the beginning of the rest. None: it has moved.

        They are looked for in a few seqs above the floor, then in more, until some message is found.
        """
        if not page.has_more:
            return []  # the page has them
        low, high = _first_seq(page), self._state.floor + 1
        window = FIRST_WINDOW
        while True:
            high = min(high + window, low)
            query = Query(self._session_id, MESSAGE, self._at, before=high)
            some = await self._reads._page(query, self._deadline)  # noqa: SLF001 - a part of it
            if not is_of(some.reading, self._first):
                return None
            above = [message for message in some.messages if (message.seq or 0) > self._state.floor]
            if above or high >= low:
                break
            window *= 8
        kept = [message for message in some.messages if (message.seq or 0) <= self._state.floor]
        for message in above:
            if message.role not in SYSTEM_ROLES:
                break
            kept.append(message)
        return [message for message in kept if message.role in SYSTEM_ROLES]

    async def summaries(self, page: MessagePage) -> tuple[Summary, ...] | None:
        """Read the newest summaries that stand for hidden messages. None: it has moved.

        A fold writes its summary behind the turns that were in view, so it is looked for from the floor upwards.
        """
        state = self._state
        if state.floor <= state.cleared:
            return ()
        found = [summary for summary in page.summaries if prompts.is_in_view(summary, state)]
        low, at = _first_seq(page) if page.has_more else 0, state.floor
        window = FIRST_WINDOW
        while at + 1 < low and not any(map(prompts.is_fold, found)):
            some = await self._summaries_between(at, min(at + 1 + window, low))
            if some is None:
                return None
            found += some
            at, window = min(at + window, low - 1), 8 * window
        if page.has_more and not any(map(prompts.is_fold, found)):
            some = await self._summaries_between(state.cleared, state.floor + 1)
            if some is None:
                return None
            found += some
        return prompts.standing_for_hidden(found, state)

    async def _summaries_between(self, after: int, before: int) -> list[Summary] | None:
        query = Query(self._session_id, SUMMARY, self._at, after, before)

        async def send(_retry: object, by: float) -> tuple[Reading, list[Summary]]:
            reader = EntryReader(self._session_id, SUMMARY)
            reading = await self._reads.backend.read(query, reader.take, by)
            return reading, [entry for entry in reader.entries if isinstance(entry, Summary)]

        reading, summaries = await self._reads.call(send, self._deadline)
        if reading.status is not Status.FOUND or not is_of(reading, self._first):
            return None
        return [summary for summary in summaries if prompts.is_in_view(summary, self._state)]


def _first_seq(page: MessagePage) -> int:
    return (page.messages[0].seq or 1) if page.messages else page.reading.state.head + 1
