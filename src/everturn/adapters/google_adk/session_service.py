"""EverturnSessionService: ADK's session service interface over a store.

events.py converts events, loaded_session.py makes `Session` objects, state_sharing.py keeps the shared state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any
from uuid import uuid4

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session

from everturn import AsyncMemoryStore, KeyReused, MemoryStore, Receipt, SessionState, VersionConflict
from everturn.adapters._shared.sync_async import CallRunner, settled
from everturn.adapters.google_adk.events import STATE, to_entries, to_events
from everturn.adapters.google_adk.later_compactions import later_compactions
from everturn.adapters.google_adk.loaded_session import (
    LoadedAt,
    loaded_at_of,
    make_session,
    set_loaded_at,
    stale_session,
)
from everturn.adapters.google_adk.session_ids import names_of, prefix_of, session_of, sessions_of, state_of
from everturn.adapters.google_adk.session_state import (
    is_creation,
    merged_state,
    own_state,
    state_record,
    time_of,
)
from everturn.adapters.google_adk.shared_state import (
    APP,
    USER,
    SharedState,
    StateDelta,
    read_shared,
    state_delta,
)
from everturn.adapters.google_adk.state_sharing import StateSharing
from everturn.model import Entry

NEAR = 64  # entries read first, to find the latest few events


class EverturnSessionService(BaseSessionService):
    """ADK sessions in an everturn store. An event is one turn of the everturn session `app/user/session`.

    An event is stored once, however often it is appended. A stale `Session` object (someone else has appended since)
    is refused with `StaleSessionError`, and nothing is written; a compaction alone makes no object stale. Staleness is
    judged by the session's version, never by a clock. An event and its change of the session's state are one atomic
    step. Changes of `app:` and `user:` state follow in steps of their own: shared_state.py says how they survive a
    crash in between. The caller closes the store.
    """

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        self._runner = CallRunner(store, "EverturnSessionService")
        self._run, self._store = self._runner.run_async, self._runner.store
        self._shared = StateSharing(self._store, is_blocking=self._runner.is_blocking)
        self._holders: dict[tuple[int, int], tuple[asyncio.Lock, int]] = {}

    # --- ADK's interface ---------------------------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session with its state in one step. If it exists, raises AlreadyExistsError and changes nothing."""
        name = str(uuid4()) if session_id is None else session_id
        return await self._run(self._create(app_name, user_id, name, state_delta(state or {}, "state")))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return the session with its events in the order they were stored; None if there is none.

        If the writer of the latest event died before it shared its `app:` and `user:` changes, they are shared now.
        """
        return await self._run(self._get(app_name, user_id, session_id, config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app, or of one user, with their state, without events; latest changed last."""
        return await self._run(self._list(app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session physically, then its effects. `app:` and `user:` state stay. An absent one is no error."""
        for name in sessions_of(app_name, user_id, session_id):
            await self._run(self._store.erase(name))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the `user:` state of a user, without the prefix in its keys."""
        shared = await self._run(read_shared(self._store, state_of(app_name, user_id)))
        return shared.values

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to the store, and then to the `session` object. A partial event is not stored.

        Raises StaleSessionError if the session has changed since the object was loaded, SessionNotFoundError if it is
        gone, InvalidInput for state that has no JSON form. Nothing is written then, and the object stays as it was.
        A caller that is cancelled while it waits for an earlier append has written nothing. A caller that is cancelled
        later has the event both in the store and in the object.
        """
        if event.partial:
            return event
        async with self._one_at_a_time(session):
            return await settled(self._append_to_both(session, event))

    # --- beyond ADK's interface --------------------------------------------------------------------------------------

    @staticmethod
    def everturn_session(*, app_name: str, user_id: str, session_id: str) -> str:
        """Return the everturn session id of an ADK session, for the store's snapshots, rollback, undo, TTL and fork."""
        return session_of(app_name, user_id, session_id)

    # --- coroutines behind it ----------------------------------------------------------------------------------------

    async def _append_to_both(self, session: Session, event: Event) -> Event:
        """Append to the store, then to the object, which ADK uses again even after a run was cancelled."""
        loaded_at = await self._run(self._append(session, event))
        if loaded_at is None:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        event = self._commit_event_to_session(session, event)
        session.last_update_time = event.timestamp
        set_loaded_at(session, loaded_at)
        return event

    @asynccontextmanager
    async def _one_at_a_time(self, session: Session) -> AsyncIterator[None]:
        """Run one append of an object at a time. Parallel branches of a run share the object, and none is stale."""
        holder = id(session), id(asyncio.get_running_loop())
        lock, waiting = self._holders.get(holder) or (asyncio.Lock(), 0)
        self._holders[holder] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._holders.pop(holder)
            if waiting > 1:
                self._holders[holder] = lock, waiting - 1

    async def _create(self, app: str, user: str, name: str, delta: StateDelta) -> Session:
        session_id = session_of(app, user, name)
        app_state, user_state = await self._shared.read(app, user)
        seen = await self._shared.begun_logs(app, user, delta, app_state.position, user_state.position)
        now = time()
        first = state_record(f"created {uuid4()}", delta, *seen)
        first.body["created_at"] = now
        try:
            receipt = await self._store.append(session_id, [first], expected_version=0)
        except VersionConflict as exc:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from exc
        loaded_at = LoadedAt(receipt.life, receipt.version, *seen)
        await self._shared.share(app, user, first.body["event"], delta, loaded_at)
        state = merged_state(delta.session, app_state.values | delta.app, user_state.values | delta.user)
        return make_session(app, user, name, state, [], now, loaded_at)

    async def _get(self, app: str, user: str, name: str, config: GetSessionConfig) -> Session | None:
        session_id = session_of(app, user, name)
        stored, events = await self._stored(session_id, config.num_recent_events, config.after_timestamp)
        if stored.version == 0:
            return None
        app_state, user_state = await self._shared.healed(app, user, stored)
        state = merged_state(own_state(stored), app_state.values, user_state.values)
        changed = events[-1].timestamp if events else time_of(stored)
        loaded_at = LoadedAt(stored.life, stored.version, app_state.position, user_state.position)
        return make_session(app, user, name, state, events, changed, loaded_at)

    async def _stored(
        self, session_id: str, recent: int | None, since: float | None
    ) -> tuple[SessionState, list[Event]]:
        """Return the stored session with at least its state, and the wanted events, as of one version."""
        if recent is None or since is not None:
            stored = await self._store.state(session_id)
            events = to_events(stored.entries)
            if since is not None:
                events = [event for event in events if event.timestamp >= since]
            return stored, events if recent is None else events[len(events) - min(recent, len(events)) :]
        width = max(NEAR, 4 * recent)
        stored = await self._store.state(session_id, kind=STATE)
        while recent:
            after = max(stored.last_seq - width, 0)
            latest = await self._store.state(session_id, after=after)
            if (latest.life, latest.version) != (stored.life, stored.version):
                stored = await self._store.state(session_id, kind=STATE)
                continue
            events = to_events(latest.entries)
            if len(events) >= recent or after == 0:
                return stored, events[-recent:]
            width *= 4
        return stored, []

    async def _list(self, app: str, user: str | None) -> ListSessionsResponse:
        found: list[Session] = []
        prefix, page = prefix_of(app, user), None
        shared: dict[str, SharedState] = {}
        while True:
            listed = await self._store.sessions(prefix, limit=500, page=page)
            for one in listed.sessions:
                names = names_of(one.session_id)
                if names is None:
                    continue
                stored = await self._store.state(one.session_id, kind=STATE)
                if stored.version == 0:
                    continue  # deleted since it was listed
                for state_id in (state_of(app), state_of(app, names[1])):
                    if state_id not in shared:
                        shared[state_id] = await read_shared(self._store, state_id)
                app_state, user_state = shared[state_of(app)], shared[state_of(app, names[1])]
                state = merged_state(own_state(stored), app_state.values, user_state.values)
                loaded_at = LoadedAt(stored.life, stored.version, app_state.position, user_state.position)
                found.append(make_session(*names, state, [], one.changed_at, loaded_at))
            page = listed.next
            if page is None:
                break
        found = list({(session.user_id, session.id): session for session in found}.values())
        found.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=found)

    async def _append(self, session: Session, event: Event) -> LoadedAt | None:
        """Append an event. Returns where the object then stands; None if the object already has this event."""
        delta = state_delta(event.actions.state_delta, "event.actions.state_delta")
        session_id = session_of(session.app_name, session.user_id, session.id)
        loaded_at = loaded_at_of(session) or await self._found_loaded_at(session, session_id)
        if event.actions.rewind_before_invocation_id is not None:
            await self._restore_first_state(session_id, session, event, delta)
        turn = to_entries(event)
        if delta.whole:
            loaded_at.app, loaded_at.user = await self._shared.begun_logs(
                session.app_name, session.user_id, delta, loaded_at.app, loaded_at.user
            )
            turn.append(state_record(event.id, delta, loaded_at.app, loaded_at.user))
        expected, compactions = Receipt(session_id, loaded_at.life, loaded_at.version), list[Event]()
        receipt: Receipt | None = None
        while True:
            try:
                receipt = await self._append_once(session_id, session, event, turn, expected)
                break
            except VersionConflict as exc:
                if exc.actual == 0:
                    raise SessionNotFoundError(f"Session {session.id} not found.") from exc
                behind = await self._behind_compactions(session_id, session, event, loaded_at)
                if behind is None:
                    raise stale_session(
                        session, f"is at version {exc.actual}, and was loaded at {loaded_at.version}"
                    ) from exc
                expected, compactions = behind
        known = receipt is None
        if receipt is not None:
            session.events.extend(compactions)
            loaded_at = LoadedAt(receipt.life, receipt.version, loaded_at.app, loaded_at.user)
        await self._shared.share(session.app_name, session.user_id, event.id, delta, loaded_at)
        return None if known else loaded_at

    async def _append_once(
        self, session_id: str, session: Session, event: Event, turn: list[Entry], expected: Receipt
    ) -> Receipt | None:
        """Append a turn keyed by its event's id. Returns None if the object already has this event."""
        receipt: Receipt
        try:
            receipt = await self._store.append(session_id, turn, key=f"adk:{event.id}", expected_version=expected)
        except KeyReused:
            if event in session.events:
                return None
            # The id was used with another content: this is a different event.
            receipt = await self._store.append(session_id, turn, expected_version=expected)
        return None if receipt.replayed and event in session.events else receipt

    async def _behind_compactions(
        self, session_id: str, session: Session, event: Event, loaded_at: LoadedAt
    ) -> tuple[Receipt, list[Event]] | None:
        """Return where the session stands, and its new compactions, if only these came since the object was loaded."""
        stored = await self._store.state(session_id)
        later = later_compactions(to_events(stored.entries), session, event)
        if later and (stored.life, stored.version) == (loaded_at.life, loaded_at.version + len(later)):
            return Receipt(session_id, stored.life, stored.version), later
        return None

    async def _found_loaded_at(self, session: Session, session_id: str) -> LoadedAt:
        """Find where an object stands that the service did not load (from JSON, say), by the latest event it has.

        Raises StaleSessionError if that is not the latest stored event, SessionNotFoundError if there is no session.
        """
        stored = await self._store.state(session_id)
        if stored.version == 0:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        events = to_events(stored.entries)
        if [event.id for event in events[-1:]] != [event.id for event in session.events[-1:]]:
            raise stale_session(session, "has other events than this object, which was not loaded by this service")
        app_state, user_state = await self._shared.healed(session.app_name, session.user_id, stored)
        return LoadedAt(stored.life, stored.version, app_state.position, user_state.position)

    async def _restore_first_state(self, session_id: str, session: Session, event: Event, delta: StateDelta) -> None:
        """Put the state that the session was created with back into a rewind. ADK computes it from events alone."""
        stored = await self._store.state(session_id, kind=STATE)
        first = next((dict(record.body["delta"]) for record in stored.records if is_creation(record)), {})
        for earlier in session.events:
            if earlier.invocation_id == event.actions.rewind_before_invocation_id:
                break
            for name in earlier.actions.state_delta:
                first.pop(name, None)
        for name, value in first.items():
            if name in delta.session and not name.startswith((APP, USER)):
                delta.session[name] = event.actions.state_delta[name] = value
