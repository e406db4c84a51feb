"""A session's own state: the records that carry it, and how ADK shows it together with the shared state. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from everturn import Record, SessionState
from everturn.adapters.google_adk.events import STATE
from everturn.adapters.google_adk.shared_state import APP, TEMP, USER, LogPosition, StateDelta


def state_record(event: str, delta: StateDelta, app: LogPosition, user: LogPosition) -> Record:
    """Make the record of an event's change of state. `seen`: the positions of the shared logs, if it changes those."""
    body: dict[str, Any] = {"event": event, "delta": delta.whole}
    if delta.app or delta.user:
        body["seen"] = [[app.life, app.seq], [user.life, user.seq]]
    return Record(STATE, body)


def is_creation(record: Record) -> bool:
    """Whether a record holds the state that its session was created with."""
    return record.kind == STATE and str(record.body["event"]).startswith("created ")


def own_state(stored: SessionState) -> dict[str, Any]:
    """Add up the session's own state from its records, in order. `app:`, `user:` and `temp:` keys are left out."""
    state: dict[str, Any] = {}
    for record in stored.records:
        if record.kind == STATE:
            state.update((k, v) for k, v in record.body["delta"].items() if not k.startswith((APP, USER, TEMP)))
    return state


def time_of(stored: SessionState) -> float:
    """Return when the latest entry was written; of a session without events, when it was created."""
    last = stored.entries[-1] if stored.entries else None
    if isinstance(last, Record) and is_creation(last):
        return float(last.body["created_at"])
    return last.created_at or 0.0 if last else 0.0


def merged_state(own: dict[str, Any], app: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """Merge a session's state with the shared ones, as ADK shows it: a copy that shares nothing with events."""
    state = own | {APP + name: value for name, value in app.items()} | {USER + k: value for k, value in user.items()}
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(state))
    return copied
