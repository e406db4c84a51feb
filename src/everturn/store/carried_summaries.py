"""Carries summaries along when a replace drops them: those that stand for turns which stay hidden.

A trim or a fold hides turns up to a floor, and summaries stand for them. A replace ("edit the last message") moves the
head back, often past the summary, while the turns stay hidden: nothing would tell of them any more. So a backend
refuses such a replace (SUMMARY_DROPPED). It is planned here, on the summaries that are read, and sent again with copies
of those that are needed, in one request.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import msgspec

from everturn.backend import Append, ChangeOutcome, ChangeRequest, Query, Reading, Status
from everturn.core import codec, prompts
from everturn.core.codec import Draft, MessageRow
from everturn.errors import MemoryStoreBackendError
from everturn.model import SUMMARY, Summary
from everturn.store.change_sender import ChangeSender, new_call


class CarriedSummaries(ChangeSender):
    """Sends a replace that may drop summaries."""

    async def _send_replace(self, request: ChangeRequest) -> ChangeOutcome:
        """Send a replace until it is answered; if it would drop summaries, with copies of those that are needed.

        A plan holds for the version and the life that it was made on. If the session has moved on, it is planned again,
        as long as the session is as the caller expects it.
        """
        deadline = self.runtime.clock() + self.settings.timeout
        outcome = await self.send_with_retries(partial(self._attempt, request), deadline)
        if outcome.status is not Status.SUMMARY_DROPPED:
            return outcome
        while True:
            planned = await self._planned_replace(request, deadline)
            outcome = await self.send_with_retries(partial(self._attempt, planned), deadline)
            is_overtaken = outcome.status is Status.CONFLICT and _is_expected(request, outcome.version, outcome.life)
            if outcome.status is not Status.SUMMARY_DROPPED and not is_overtaken:
                return outcome
            if self.runtime.clock() >= deadline:
                raise MemoryStoreBackendError(
                    f"session {request.session_id!r}: it was changed again and again while a replace was planned",
                    outcome="not_written",
                )

    async def _planned_replace(self, request: ChangeRequest, deadline: float) -> ChangeRequest:
        """Plan a replace on the summaries that are there now. A new plan is a new call.

        If the session is not as the caller expects it, the request stays as it was: the backend looks for its key
        before it refuses it.
        """
        action = request.action
        assert isinstance(action, Append) and action.after is not None  # noqa: S101, PT018 - the caller made it
        reading, rows = await self._summaries_behind(request.session_id, action.after, deadline)
        version, life = (reading.session.version, reading.session.life) if reading.session else (0, "")
        again = msgspec.structs.replace(request, call=new_call())
        if not _is_expected(request, version, life):
            return again
        dropped = [_summary(request.session_id, *row) for row in rows]
        given = [
            _summary(request.session_id, 0, 0.0, draft.checksum, draft.body)
            for draft in action.drafts
            if draft.kind == SUMMARY
        ]
        needed = {one.seq for one in prompts.to_carry(dropped, given, reading.state, action.after)}
        # Byte for byte, as they are stored: what this version does not know of them stays, and so does their checksum.
        carried = tuple([Draft(SUMMARY, bytes(body), check) for seq, _, check, body in rows if seq in needed])
        action = msgspec.structs.replace(action, carried=carried)
        return msgspec.structs.replace(again, action=action, expected_version=version, expected_life=life)

    async def _summaries_behind(self, session_id: str, after: int, deadline: float) -> tuple[Reading, list[MessageRow]]:
        """Read the summaries of the present state behind a seq. Raises CorruptEntry if one is missing."""
        query = Query(session_id, SUMMARY, after=after)

        async def send(_retry: object, by: float) -> tuple[Reading, list[MessageRow]]:
            rows: list[MessageRow] = []
            return await self.backend.read(query, rows.extend, by), rows

        reading, rows = await self.send_with_retries(send, deadline)
        if reading.first_missing:
            raise codec.missing(session_id, reading.first_missing)
        return reading, rows


def _is_expected(request: ChangeRequest, version: int, life: str) -> bool:
    """Whether a session at this version is as the caller of a change expects it."""
    return request.expected_version in (None, version) and request.expected_life in (None, life)


def _summary(session_id: str, seq: int, at: float, check: int, body: bytes) -> Summary:
    """Decode a stored summary. Raises CorruptEntry."""
    return cast("Summary", codec.decode(session_id, SUMMARY, seq, at, check, body))
