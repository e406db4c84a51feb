"""Effects: the requests that begin and end one, and the row that a backend keeps of it. Values, no IO.

An effect is something done in the world for a session: a payment, a mail. Its row belongs to the life, not to the path:
no rollback, undo, trim, fold or clear touches it. plan_change.py has the rules.
"""

from __future__ import annotations

from typing import Literal

import msgspec

STARTED, FINISHED, FAILED = "started", "finished", "failed"


class BeginEffect(msgspec.Struct, frozen=True, gc=False):
    """Begin an effect, unless it was begun before. `request` is JSON, or None; `by` says who begins it.

    An effect that failed may begin again. An effect that is started may begin again only if `repeats` is the number of
    its attempt. A new attempt without a request keeps the request of the attempt before.
    """

    key: str
    request: bytes | None
    by: str
    token: int = 0  # of the lease that the request names; 0: none
    repeats: int = 0

    @property
    def kind(self) -> str:
        return "begin_effect"

    @property
    def label(self) -> str:
        """Name of the effect, for the record of the change."""
        return self.key


class EndEffect(msgspec.Struct, frozen=True, gc=False):
    """End an effect that is started: `body` is the JSON of its result or its error, `note` a person's reason.

    With `attempt`, only if that is the attempt that is started.
    """

    key: str
    status: Literal["finished", "failed"]
    body: bytes | None
    note: str | None = None
    attempt: int = 0

    @property
    def kind(self) -> str:
        return "finish_effect" if self.status == FINISHED else "fail_effect"

    @property
    def label(self) -> str:
        """Name of the effect, for the record of the change."""
        return self.key


class StoredEffect(msgspec.Struct, frozen=True, gc=False):
    """The row of an effect. `began` is the version of the change that began it, `ended` of the change that ended it, or
    0.

    `token` is the token of the lease that the effect was begun under (0: none). Bodies are JSON. `held` is not stored:
    it says whether that lease is still held at the moment of the answer.
    """

    key: str
    status: str
    attempt: int
    began: int
    ended: int
    token: int
    by: str
    at: float
    ended_at: float | None
    request: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    note: str | None = None
    held: bool = False


def begun(action: BeginEffect, before: StoredEffect | None) -> StoredEffect:
    """Make the row of an effect that begins. The backend stamps it."""
    attempt = before.attempt + 1 if before else 1
    request = before.request if before and action.request is None else action.request
    return StoredEffect(
        action.key, STARTED, attempt, 0, 0, action.token, action.by, 0.0, None, request, held=action.token > 0
    )


def ended(action: EndEffect, before: StoredEffect) -> StoredEffect:
    """Make the row of an effect that ends. The backend stamps it."""
    is_finished = action.status == FINISHED
    return msgspec.structs.replace(
        before,
        status=action.status,
        result=action.body if is_finished else None,
        error=None if is_finished else action.body,
        note=action.note,
    )


def stamped(row: StoredEffect, version: int, now: float) -> StoredEffect:
    """Put the version and the time of the change into the row that it writes."""
    if row.status == STARTED:
        return msgspec.structs.replace(row, began=version, at=now)
    return msgspec.structs.replace(row, ended=version, ended_at=now)
