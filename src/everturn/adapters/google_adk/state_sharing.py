"""Shares `app:` and `user:` state between sessions: reads both logs, and merges the changes of an event into them.

shared_state.py has one log. A session's event carries the changes, so a change that its writer did not share is found.
"""

from __future__ import annotations

import asyncio

from everturn import AsyncMemoryStore, SessionState
from everturn.adapters.google_adk.loaded_session import LoadedAt
from everturn.adapters.google_adk.session_ids import state_of
from everturn.adapters.google_adk.shared_state import (
    LogPosition,
    SharedState,
    StateDelta,
    begin_log,
    merge_change,
    read_shared,
    state_delta,
)


class StateSharing:
    """The shared states of one store."""

    def __init__(self, store: AsyncMemoryStore, *, is_blocking: bool) -> None:
        self._store = store
        self._is_blocking = is_blocking

    async def read(self, app: str, user: str) -> tuple[SharedState, SharedState]:
        """Return the states of an app and of one of its users."""
        names = state_of(app), state_of(app, user)
        if self._is_blocking:  # its coroutines never suspend, so gather would gain nothing
            return await read_shared(self._store, names[0]), await read_shared(self._store, names[1])
        app_state, user_state = await asyncio.gather(*(read_shared(self._store, name) for name in names))
        return app_state, user_state

    async def begun_logs(
        self, app: str, user: str, delta: StateDelta, seen_app: LogPosition, seen_user: LogPosition
    ) -> tuple[LogPosition, LogPosition]:
        """Return the positions of the shared logs. A log that is to be changed and does not exist yet is begun."""
        if delta.app and not seen_app.life:
            seen_app = await begin_log(self._store, state_of(app))
        if delta.user and not seen_user.life:
            seen_user = await begin_log(self._store, state_of(app, user))
        return seen_app, seen_user

    async def share(self, app: str, user: str, event: str, delta: StateDelta, loaded_at: LoadedAt) -> None:
        """Merge an event's `app:` and `user:` changes into their shared logs. A change that is merged already stays."""
        if delta.app:
            loaded_at.app = await merge_change(self._store, state_of(app), event, delta.app, seen=loaded_at.app)
        if delta.user:
            loaded_at.user = await merge_change(
                self._store, state_of(app, user), event, delta.user, seen=loaded_at.user
            )

    async def healed(self, app: str, user: str, stored: SessionState) -> tuple[SharedState, SharedState]:
        """Return the shared states, after merging the changes of the session's latest event that has any.

        Only these can be missing: the caller that appends has loaded the session before, and so merged earlier changes.
        """
        app_state, user_state = await self.read(app, user)
        last = next((record.body for record in reversed(stored.records) if "seen" in record.body), None)
        if last is None:
            return app_state, user_state
        delta = state_delta(last["delta"], "state")
        seen_app, seen_user = (LogPosition(*position) for position in last["seen"])
        lacks_app = delta.app and app_state.lacks(last["event"], seen_app)
        lacks_user = delta.user and user_state.lacks(last["event"], seen_user)
        if lacks_app:
            await merge_change(self._store, app_state.session_id, last["event"], delta.app, seen=seen_app)
        if lacks_user:
            await merge_change(self._store, user_state.session_id, last["event"], delta.user, seen=seen_user)
        return await self.read(app, user) if lacks_app or lacks_user else (app_state, user_state)
