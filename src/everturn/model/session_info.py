"""SessionInfo: a session in numbers. Page: some sessions, and where the next page begins."""

from __future__ import annotations

import msgspec


class SessionInfo(msgspec.Struct, frozen=True):
    """A session in numbers, each of them cheap at any length. Times are seconds since 1970, informational.

    `messages` counts the history; `last_seq` every entry of this life; `bytes` their stored bodies. `facts` are those
    that `set_facts` set, by name.
    """

    session_id: str
    life: str
    version: int
    messages: int
    last_seq: int
    bytes: int
    snapshots: int
    undo_steps: int
    created_at: float
    changed_at: float
    ttl: float | None
    expires_at: float | None
    forked_from: str | None
    facts: dict[str, str] = {}


class Page(msgspec.Struct, frozen=True):
    """Some sessions, and the opaque token of the next page (None on the last)."""

    sessions: tuple[SessionInfo, ...]
    next: str | None
