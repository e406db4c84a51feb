"""Fold: hides the oldest turns behind a summary that a model writes, outside of every lock and time-out.

It reads and plans, asks the model, and sends one request that names the state it read. The backend applies it if
the turns it hides are still in view; turns that were appended meanwhile stay. A lease keeps workers that fold at once
from paying the model twice (decision 040); it is not needed for correctness.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import msgspec

from everturn.backend import ChangeOutcome, Fold, Query, State, Status
from everturn.core import codec
from everturn.core.trimming import TrimCut, TrimPlanner
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.model import MESSAGE, ChatMessage, Receipt, Summary
from everturn.store import pages
from everturn.store.arguments import checked_expectation, checked_id, checked_limit
from everturn.store.change_sender import Expected, Leased, new_call
from everturn.store.context import ContextOperations, StateParts, checked_counter, is_of
from everturn.store.key_lookup import KeyLookup
from everturn.store.lease_holder import LeaseHolder
from everturn.store.leases import LeaseOperations
from everturn.store.outcomes import conflict, receipt_of
from everturn.store.trim import TrimBounds, TrimOperations, tell

T = TypeVar("T")
Summarize: TypeAlias = Callable[[list[ChatMessage], Summary | None], Any]
"""A function from the oldest messages, and the summary before them, to a text or a Summary. It may be a coroutine."""
Embed: TypeAlias = Callable[[str], Collection[float] | Awaitable[Collection[float]]]

_NO_NUMBERS = (str, bytes, bytearray, Mapping, AbstractSet)  # iterable, but no numbers in order
LEASE_SECONDS = 300.0  # how long a worker that died keeps others from folding
FOLDS = "everturn:fold:"  # with a digest behind it, the name of the lease of a session's folds; no session has it


class FoldPlan(msgspec.Struct, frozen=True):
    """A fold that is planned: the state that was read, where to cut, and the messages that go."""

    life: str
    version: int
    seen: State
    cut: TrimCut
    messages: list[ChatMessage]
    earlier: Summary | None

    @property
    def covers(self) -> tuple[int, int]:
        """First and last seq that the summary stands for, with those of the summary before it."""
        first, last = self.messages[0].seq or 1, self.messages[-1].seq or 1
        return min(first, self.earlier.covers[0]) if self.earlier else first, last


class FoldOperations(TrimOperations, ContextOperations, KeyLookup, LeaseOperations):
    """The method `fold`."""

    async def fold(
        self,
        session_id: str,
        summarize: Summarize,
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        max_messages: int | None = None,
        embed: Embed | None = None,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt | None:
        """Hide the oldest turns behind a summary, so that at most the bounds stay. Undoable, in one step.

        Returns None if there is nothing to fold, or if another fold, a rollback, a clear or a trim came first.
        """
        for name, function in (("summarize", summarize), ("embed", embed)):
            if not callable(function) and not (function is None and name == "embed"):
                raise InvalidInput(f"is a function, not {type(function).__name__}", path=name)
        counter = checked_counter(count_tokens)
        bounds = TrimBounds(
            checked_limit(max_messages, "max_messages"),
            checked_limit(max_tokens, "max_tokens"),
            counter if max_tokens is not None else None,
            keep_system=True,
        )
        if max_messages is None and max_tokens is None:
            raise InvalidInput("give max_messages or max_tokens", path="max_messages")
        session_id = checked_id(session_id)
        # What is no version, or no lease of the session, is refused before a model is paid.
        checked_expectation(expected_version)
        claim = self._lease_claim(session_id, lease)
        content = msgspec.json.encode([bounds.max_messages, bounds.max_tokens])
        if key is not None and (first := await self._first_use(session_id, key)) is not None:
            return first
        plan = await self._fold_plan(session_id, bounds, expected_version)
        if plan is None:
            return None
        async with self._right_to_ask(session_id) as is_ours:
            if not is_ours:
                return None
            if not await self._is_as_seen(session_id, plan):  # another's fold came between the plan and the lease
                plan = await self._fold_plan(session_id, bounds, expected_version)
                if plan is None:
                    return None
            draft = await self._summarized(plan, summarize, embed)
            action = Fold(plan.life, plan.seen, plan.cut.floor, plan.cut.kept, plan.cut.hidden, draft)
            outcome = await self._outcome(
                session_id, action, key, expected_version, (content,), call=new_call(), also=Status.MOVED, lease=claim
            )
            return None if outcome.status is Status.MOVED else receipt_of(session_id, outcome)

    # --- the plan ----------------------------------------------------------------------------------------------------

    async def _fold_plan(self, session_id: str, bounds: TrimBounds, expected: Expected) -> FoldPlan | None:
        """Read the history, and plan the fold; None if all of it fits. Raises VersionConflict: no model is paid yet."""
        deadline = self.runtime.clock() + self.settings.timeout
        while True:
            page, _ = await self._latest_page(session_id, None, pages.FIRST_PAGE, deadline)
            first, session = page.reading, page.reading.session
            version, life = checked_expectation(expected)
            actual = (session.version, session.life) if session else (0, "")
            if version not in (None, actual[0]) or life not in (None, actual[1]):
                outcome = ChangeOutcome(Status.CONFLICT, actual[1], actual[0])
                raise conflict(session_id, version, outcome)
            if session is None:
                return None
            parts = StateParts(self, session_id, session.version, first, deadline)
            standing = await parts.summaries(first.summaries)
            planner = TrimPlanner(
                floor=first.state.floor,
                max_messages=bounds.max_messages,
                max_tokens=bounds.max_tokens,
                keep_system=True,
            )
            read: list[list[ChatMessage]] = []
            while True:
                await self.runtime.offload(partial(tell, page, planner, bounds))
                read.append(page.messages)
                if not page.has_more or standing is None or not is_of(page.reading, first):
                    break
                # All kinds only where it matters which turn a message is of: messages alone are read much faster.
                kind = None if planner.wants_turns else MESSAGE
                page = await self._page(page.next_query(session_id, kind, session.version), deadline)
            if standing is not None and is_of(page.reading, first):
                break
            if self.runtime.clock() >= deadline:
                raise MemoryStoreBackendError(
                    f"session {session_id!r}: its head was moved again and again while a fold was planned",
                    outcome="not_written",
                )
        cut = await self.runtime.offload(planner.cut)
        if cut is None:
            return None
        kept = set(cut.kept)
        messages = chain.from_iterable(reversed(read))
        hidden = [message for message in messages if (message.seq or 0) <= cut.floor and message.seq not in kept]
        earlier = standing[-1] if standing else None
        return FoldPlan(session.life, session.version, first.state, cut, hidden, earlier)

    async def _is_as_seen(self, session_id: str, plan: FoldPlan) -> bool:
        """Whether the turns to be hidden are still in view, as far as the present state tells."""
        page = await self._page(Query(session_id, limit=0), self.runtime.clock() + self.settings.timeout)
        now, seen = page.reading.state, plan.seen
        same = (now.cleared, now.floor, now.kept) == (seen.cleared, seen.floor, seen.kept) and now.head >= seen.head
        return same and page.reading.session is not None and page.reading.session.life == plan.life

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _summarized(self, plan: FoldPlan, summarize: Summarize, embed: Embed | None) -> codec.Draft:
        """Ask the model for the summary, and encode it. Raises InvalidInput for anything but a text or a Summary."""
        made = await self._asked(partial(summarize, list(plan.messages), plan.earlier), "summarize")
        if isinstance(made, str):
            made = Summary(made, None, plan.covers)
        if not isinstance(made, Summary):
            raise InvalidInput(f"returned {type(made).__name__}, not a text or a Summary", path="summarize")
        if not isinstance(made.text, str) or not made.text.strip():
            raise InvalidInput("returned no text; nothing was folded", path="summarize")
        extra: Any = made.extra or {}
        if not isinstance(extra, dict):
            told = f"returned a Summary with an extra that is no dict but {type(extra).__name__}"
            raise InvalidInput(f"{told}; nothing was folded", path="summarize")
        embedding = made.embedding
        if embedding is None and embed is not None:
            numbers = await self._asked(partial(embed, made.text), "embed")
            if not isinstance(numbers, Iterable) or isinstance(numbers, _NO_NUMBERS):
                raise InvalidInput(f"returned {type(numbers).__name__}, not numbers; nothing was folded", path="embed")
            embedding = tuple(numbers)
        extra = extra | {codec.FOLD_MARK: True}
        summary = Summary(made.text, embedding, plan.covers, extra=extra)
        return codec.encode(summary, "summary", self.settings.max_message_bytes)

    async def _asked(self, ask: Callable[[], Any], path: str) -> Any:
        """Call a function of the caller where it holds up no event loop; await its result if that is a coroutine."""
        answer = await self.runtime.offload(ask)
        return await self.runtime.answer(answer, path) if isawaitable(answer) else answer

    # --- the lease ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _right_to_ask(self, session_id: str) -> AsyncIterator[bool]:
        """Hold the right to ask a model about a session: a lease of its own, which is not the session's.

        Yields False if another worker has it. A backend without leases lets everybody ask: that costs money, not turns.
        """
        if getattr(self.backend, "lease", None) is None:
            yield True
            return
        lease = LeaseHolder(FOLDS + codec.digest(session_id.encode()).hex(), LEASE_SECONDS, self.worker_name)
        if (await self.send_lease(lease, "take")).status is not Status.APPLIED:
            yield False
            return
        try:
            yield True
        finally:
            with suppress(MemoryStoreBackendError):  # else it expires
                await self.send_lease(lease, "release")
