"""Trim: a change that is planned here, in Python, and so has to read before it writes. (Fold is the other: fold.py.)

It reads from the newest message backwards, a page at a time, and asks a planner (core/trimming.py) where to cut. If the
session has changed meanwhile so that the cut no longer fits, the backend refuses it (MOVED), and it is planned again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from everturn.backend import Query, Status, Trim
from everturn.core.tool_calls import SYSTEM_ROLES
from everturn.core.trimming import TrimPlanner, counted, header
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.model import MESSAGE, ChatMessage, Receipt
from everturn.store import pages
from everturn.store.arguments import checked_bound, checked_id
from everturn.store.change_sender import Expected, Leased, new_call
from everturn.store.changes import ChangeOperations
from everturn.store.outcomes import receipt_of
from everturn.store.pages import MessagePage, PagedReads


class TrimOperations(ChangeOperations, PagedReads):
    """The method `trim`."""

    async def trim(
        self,
        session_id: str,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        keep_system: bool = True,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Hide the oldest turns, so that at most `max_messages` (or `max_tokens` by your counter) stay. Undoable.

        Keeps system messages (they count) unless told otherwise, whole turns, always the last one, and a tool call
        together with its result. Summaries stay. If all fits, or the session is absent, nothing changes.
        """
        max_messages = checked_bound(max_messages, "max_messages")
        max_tokens = checked_bound(max_tokens, "max_tokens")
        if max_messages is None and max_tokens is None:
            raise InvalidInput("give max_messages or max_tokens", path="max_messages")
        if (max_tokens is None) != (count_tokens is None):
            raise InvalidInput("max_tokens needs count_tokens, and the other way round", path="count_tokens")
        if not isinstance(keep_system, bool):
            raise InvalidInput(f"is True or False, not {type(keep_system).__name__}", path="keep_system")
        bounds = TrimBounds(max_messages, max_tokens, count_tokens, keep_system)
        content = msgspec.json.encode([max_messages, max_tokens, keep_system])
        deadline = self.runtime.clock() + self.settings.timeout
        while True:
            action = await self._planned_cut(checked_id(session_id), bounds, deadline)
            if action is not None:
                outcome = await self._outcome(
                    session_id,
                    action,
                    key,
                    expected_version,
                    (content,),
                    call=new_call(),  # a new plan is a new call
                    also=Status.MOVED,
                    deadline=deadline,
                    lease=lease,
                )
                if outcome.status is not Status.MOVED:
                    return receipt_of(session_id, outcome)
            if self.runtime.clock() >= deadline:  # the head was moved meanwhile: look again, but not for ever
                raise MemoryStoreBackendError(
                    f"session {session_id!r}: its head was moved again and again while a trim was planned",
                    outcome="not_written",
                )

    async def _planned_cut(self, session_id: str, bounds: TrimBounds, deadline: float) -> Trim | None:
        """Read the history from the newest message backwards, as far as the plan needs it, and plan the cut.

        Returns None if the session was changed meanwhile so that the pages do not fit together.

        Later pages are read at the version of the first, so that all of them are of one state.
        """
        page = await self._page(Query(session_id, limit=pages.FIRST_PAGE), deadline)
        seen, session = page.reading.state, page.reading.session
        if session is None:
            return Trim("", seen, None)
        planner = TrimPlanner(
            floor=seen.floor,
            max_messages=bounds.max_messages,
            max_tokens=bounds.max_tokens,
            keep_system=bounds.keep_system,
        )
        while True:
            await self.runtime.offload(partial(tell, page, planner, bounds))
            if not (page.has_more and planner.wants_more):
                break
            if self.runtime.clock() >= deadline:
                raise self._too_long(session_id, seen.messages, planner)
            # All kinds only where it matters which turn a message is of: messages alone are read much faster.
            kind = None if planner.wants_turns else MESSAGE
            try:
                page = await self._page(page.next_query(session_id, kind, session.version), deadline)
            except MemoryStoreBackendError as exc:
                if self.runtime.clock() < deadline:
                    raise
                raise self._too_long(session_id, seen.messages, planner) from exc
            now = page.reading.session
            if now is None or now.life != session.life or page.reading.state != seen:
                return None
        cut = await self.runtime.offload(partial(planner.cut, seen.messages if page.has_more else None))
        if cut is None:
            return Trim(session.life, seen, None)
        return Trim(session.life, seen, cut.floor, cut.kept, cut.hidden)

    def _too_long(self, session_id: str, messages: int, planner: TrimPlanner) -> MemoryStoreBackendError:
        advice = "open the store with a larger timeout"
        if not planner.wants_turns:  # then it reads on for system messages only
            advice += ", or trim with keep_system=False, which reads only as many messages as stay"
        return MemoryStoreBackendError(
            f"session {session_id!r}: of its {messages:,} messages {planner.seen:,} could be looked at within "
            f"{self.settings.timeout:g} s, and a trim needs more of them; {advice}",
            outcome="not_written",
        )


class TrimBounds(msgspec.Struct, frozen=True):
    """Bounds of a trim: how much may stay."""

    max_messages: int | None
    max_tokens: int | None
    count_tokens: Callable[[ChatMessage], int] | None
    keep_system: bool


def tell(page: MessagePage, planner: TrimPlanner, bounds: TrimBounds) -> None:
    """Tell the planner of the messages of a page, newest first, as far as it wants to know."""
    messages, count = page.messages, bounds.count_tokens
    if not planner.wants_calls:
        kept = [message for message in messages if message.role in SYSTEM_ROLES]
        for message in reversed(kept):
            planner.add(header(message, 0, counted(count, message) if count else 0))
        planner.pass_over(len(messages) - len(kept))
        return
    turns = page.turns or [0] * len(messages)
    for message, turn in zip(reversed(messages), reversed(turns), strict=True):
        matters = count is not None and (planner.counts_tokens or (bounds.keep_system and message.role in SYSTEM_ROLES))
        planner.add(header(message, turn, counted(count, message) if count and matters else 0))
