"""Effect: something done in the world for a session, such as a payment, as the store has recorded it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

EffectStatus: TypeAlias = Literal["new", "started", "finished", "failed"]


class Effect(msgspec.Struct, frozen=True):
    """Something done in the world for a session, under a key that is unique in its life: a payment, a mail.

    `status`: "new" for the one caller that began it, and is to do it now; "started": it was begun and has not ended;
    "finished" with its `result`; "failed" with its `error`: then it may begin again. `attempt` counts from 1. `at` and
    `ended_at` are seconds since 1970, informational. `by` names the store that began it, `lease` the token of the lease
    it was begun under (None: none), `version` the change that began it; `note` is the reason of a person who ended it.
    """

    key: str
    status: EffectStatus
    request: Any = None
    result: Any = None
    error: Any = None
    attempt: int = 1
    at: float = 0.0
    ended_at: float | None = None
    by: str = ""
    lease: int | None = None
    version: int = 0
    note: str | None = None
