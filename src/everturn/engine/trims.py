"""Trim: the one change whose thinking is done in Python, and so the one that looks before it asks.

Where to cut is a rule (rules.plan_trim); a cut planned on a state that is no more is refused, and planned again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from everturn import codec, rules
from everturn.backend import Query, Reading, SetFloor, Status
from everturn.engine.calls import checked_bound, checked_id
from everturn.engine.changes import Changes, Expected, new_call, receipt_of
from everturn.engine.rows import EntryReader
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.model import ChatMessage, Receipt


class Trims(Changes):
    """See Changes for what all changes have in common."""

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
        fit = functools.partial(
            rules.plan_trim, max_messages=max_messages, max_tokens=max_tokens, keep_system=keep_system
        )
        content = msgspec.json.encode([max_messages, max_tokens, keep_system])
        deadline = self.face.clock() + self.settings.timeout
        while True:
            effect = await self._planned_cut(checked_id(session_id), fit, count_tokens)
            outcome = await self._outcome(
                session_id, effect, key, expected_version, (content,), call=new_call(), also=Status.MOVED
            )
            if outcome.status is not Status.MOVED:
                return receipt_of(session_id, outcome)
            if self.face.clock() >= deadline:  # the head was moved meanwhile: look again, but not for ever
                raise MemoryStoreBackendError(
                    f"session {session_id!r}: its head was moved again and again while a trim was planned",
                    outcome="not_written",
                )

    async def _planned_cut(
        self, session_id: str, fit: Callable[..., rules.Cut | None], count: Callable[[ChatMessage], int] | None
    ) -> SetFloor:
        """Look at what is visible, and think about where to cut: the one change whose thinking is done in Python."""

        async def send(_retry: object, by: float) -> tuple[Reading, EntryReader]:
            reader = EntryReader(session_id)
            return await self.backend.read(Query(session_id), reader.take, by), reader

        reading, reader = await self.call(send)
        if reading.first_missing:
            raise codec.missing(session_id, reading.first_missing)
        state = reading.state
        cut = await self.face.offload(
            lambda: fit([rules.header(entry, turn, count) for entry, turn in reader.with_turns()], floor=state.floor)
        )
        life = reading.session.life if reading.session else ""
        return SetFloor(life, state, None) if cut is None else SetFloor(life, state, cut.floor, cut.kept, cut.hidden)
