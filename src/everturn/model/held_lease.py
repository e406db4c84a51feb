"""HeldLease: who holds the lease of a session, and until when."""

from __future__ import annotations

import msgspec


class HeldLease(msgspec.Struct, frozen=True):
    """The lease of a session as another sees it: it is no right to work on the session.

    `token` is its number, `by` names the store that holds it: machine, process, and a random part. `since` is the
    moment at which that worker asked for it, `until` the moment at which it ends unless it is renewed, in `left`
    seconds. Moments are seconds since 1970, informational: `since` by the worker's clock, `until` by the backend's.
    """

    session_id: str
    token: int
    by: str
    since: float | None
    until: float
    left: float
