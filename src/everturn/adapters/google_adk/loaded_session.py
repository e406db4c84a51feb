"""ADK's `Session` objects: made of stored sessions, with the life and version at which each was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions.session import Session

from everturn.adapters.google_adk.shared_state import LogPosition


class LoadedAt(msgspec.Struct, array_like=True):
    """Life and version at which a `Session` object was loaded. The object carries it as text in a private field."""

    life: str
    version: int
    app: LogPosition
    user: LogPosition


def make_session(
    app: str, user: str, name: str, state: dict[str, Any], events: Sequence[Event], changed: float, loaded_at: LoadedAt
) -> Session:
    """Make ADK's object of a session that was loaded."""
    session = Session(app_name=app, user_id=user, id=name, state=state, last_update_time=changed)
    session.events.extend(events)  # the constructor would validate each again
    set_loaded_at(session, loaded_at)
    return session


def set_loaded_at(session: Session, loaded_at: LoadedAt) -> None:
    """Note where an object stands after an append."""
    # ADK's field for a service's own marker. It is private; test_interface.py notices if it goes.
    session._storage_update_marker = msgspec.json.encode(loaded_at).decode()  # noqa: SLF001


def loaded_at_of(session: Session) -> LoadedAt | None:
    """Return where an object was loaded; None if this service did not load it."""
    try:
        return msgspec.json.decode(session._storage_update_marker or "", type=LoadedAt)  # noqa: SLF001 - see set_loaded_at
    except msgspec.DecodeError:
        return None


def stale_session(session: Session, why: str) -> StaleSessionError:
    """Make the error for an object whose session has changed since it was loaded."""
    return StaleSessionError(
        f"session {session.id!r} of user {session.user_id!r} in {session.app_name!r} {why}; "
        "load it again with get_session, and append to that"
    )
