"""Context: the prompt for a model, read by one request: system messages, summaries, and the newest turns that fit.

Nearly always one request has all of it (`Query.front`). If more is needed, it is read at the version of the first: a
version's state never changes, so that all of it is of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from everturn.backend import FRONT_SUMMARIES, At, Query, Reading, Status
from everturn.core import codec, prompts
from everturn.core.codec import EntryRow
from everturn.core.prompt_plan import CountedOnce, PromptBounds, PromptPlan
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.events import Source
from everturn.model import MESSAGE, SUMMARY, ChatMessage, Context, Entry, Snapshot, Summary
from everturn.store import pages
from everturn.store.arguments import checked_at, checked_id, checked_limit
from everturn.store.entry_reader import EntryReader
from everturn.store.healed_prompts import count_healed
from everturn.store.pages import MessagePage, PagedReads, refuse_absent_state

T = TypeVar("T")
FIRST_WINDOW = 16  # seqs that are looked at first for more system messages; then eight times as many
FEW = 200  # messages that are planned without leaving the event loop, if their tokens are estimated: half a millisecond


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
        """Read what to give a model: system messages, the summaries that stand for hidden turns, the newest turns.

        The turns are as many as fit, always the last one, and never without the call of a tool's result. It reads no
        more than it needs: system messages are those at the beginning, those that a trim or fold kept, and those among
        the turns read.
        """
        bounds = PromptBounds(
            checked_limit(max_messages, "max_messages"),
            checked_limit(max_tokens, "max_tokens"),
            checked_limit(max_bytes, "max_bytes"),
            None if count_tokens is None else CountedOnce(checked_counter(count_tokens)),
        )
        session_id, moment = checked_id(session_id), checked_at(at)
        deadline = self.runtime.clock() + self.settings.timeout
        while True:
            found = await self._context(session_id, moment, bounds, deadline, heal=heal)
            if found is not None:
                return found
            if self.runtime.clock() >= deadline:
                raise MemoryStoreBackendError(
                    f"session {session_id!r}: its head was moved again and again while it was read",
                    outcome="not_written",
                )

    async def _context(
        self, session_id: str, at: At, bounds: PromptBounds, deadline: float, *, heal: bool
    ) -> Context | None:
        """Read a context. None if a second page does not fit the first: that state is no more."""
        size = bounds.first_page
        page, front = await self._latest_page(session_id, at, size, deadline)
        reading, session = page.reading, page.reading.session
        refuse_absent_state(page.query, reading)
        if session is None:
            return Context([], 0, 0, (), "", 0)
        pinned = session.version if at is None else at
        parts = StateParts(self, session_id, pinned, reading, deadline)
        leading: list[ChatMessage] | None = []
        if reading.cut:
            leading, is_all = prompts.leading(front, reading.state.floor)
            if not is_all:
                leading = await parts.leading(page.messages[0].seq or 1)
        summaries = await parts.summaries(reading.summaries) if reading.summaries else ()
        if summaries is None or leading is None:
            return None
        plan = PromptPlan(bounds, reading.state, leading, map(prompts.summary_message, summaries))
        healing_for = self.source if heal else None
        think = _at_once if bounds.count_tokens is None and size <= FEW else self.runtime.offload
        while True:
            composed = await think(partial(_composed, plan, page, bounds, healing_for))
            if composed is not None:
                return Context(*composed, summaries, session.life, session.version)
            size = min(4 * size, pages.LARGEST_PAGE)
            page = await self._page(page.next_query(session_id, None, pinned, size), deadline)
            if not is_of(page.reading, reading):
                return None


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def _composed(
    plan: PromptPlan, page: MessagePage, bounds: PromptBounds, healing_for: Source | None
) -> tuple[list[ChatMessage], int, int] | None:
    """Compose the messages of a context with another page, and count their tokens and the messages left out. None: the
    plan wants an older page."""
    plan.add(page.messages, page.turns or [])
    if page.has_more and plan.wants_more:
        return None
    if healing_for is not None and plan.concerns_tools:
        messages, left_out, is_healed = plan.compose_healed()
        if is_healed:
            count_healed(healing_for)
    else:
        messages, left_out = plan.compose()
    return messages, sum(bounds.tokens_of(messages)), left_out


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
    """The parts of a state that stand before its turns, where one request did not have all: it reads the rest."""

    def __init__(self, reads: PagedReads, session_id: str, at: At, first: Reading, deadline: float) -> None:
        self._reads = reads
        self._session_id = session_id
        self._at = at
        self._first = first
        self._state = first.state
        self._deadline = deadline

    async def leading(self, before: int) -> list[ChatMessage] | None:
        """Read the system messages that a trim kept, and those at the beginning of the rest, up to a seq.

        More and more seqs above the floor are read, until a message ends the run. None: the session has moved.
        """
        high, window = self._state.floor + 1, FIRST_WINDOW
        while True:
            high, window = min(high + window, before), 8 * window
            query = Query(self._session_id, MESSAGE, self._at, before=high)
            some = await self._reads._page(query, self._deadline)  # noqa: SLF001 - a part of it
            if not is_of(some.reading, self._first):
                return None
            leading, is_all = prompts.leading(some.messages, self._state.floor)
            if is_all or high >= before:
                return leading

    async def summaries(self, rows: Sequence[EntryRow]) -> tuple[Summary, ...] | None:
        """Choose the newest summaries that stand for hidden messages, back to the newest that a fold wrote.

        `rows` are the latest summaries, which came with the first page. If a fold wrote none of these, all summaries
        are read. None: the session has moved.
        """
        found = [codec.decode(self._session_id, row[4], *row[:4]) for row in rows]
        in_view = self._in_view(found)
        if len(rows) < FRONT_SUMMARIES or any(map(prompts.is_fold, in_view)):
            return prompts.standing_for_hidden(in_view, self._state)
        query = Query(self._session_id, SUMMARY, self._at)

        async def send(_retry: object, by: float) -> tuple[Reading, list[Entry]]:
            reader = EntryReader(self._session_id, SUMMARY)
            return await self._reads.backend.read(query, reader.take, by), reader.entries

        reading, entries = await self._reads.send_with_retries(send, self._deadline)
        if reading.status is not Status.FOUND or not is_of(reading, self._first):
            return None
        return prompts.standing_for_hidden(self._in_view(entries), self._state)

    def _in_view(self, entries: Sequence[Entry]) -> list[Summary]:
        summaries = (entry for entry in entries if isinstance(entry, Summary))
        return [summary for summary in summaries if prompts.is_in_view(summary, self._state)]
