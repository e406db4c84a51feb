"""`app:` and `user:` state: logs of changes, each in an everturn session of its own.

An event and its change of shared state are in different sessions, so two requests write them. The event comes first and
carries the change. If the writer dies before the second request, the next load of the event's session merges the
change. A change is keyed by its event, so it is merged once. Of two changes of one key the later merged wins.

A shared log never expires, whatever the store's `ttl`: a running session refreshes only its own TTL. So a log begins
with two requests, of which the second removes its TTL. Events refer to the log's life only after both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic_core import to_jsonable_python

from everturn import AsyncMemoryStore, InvalidInput, Receipt, Record, SessionNotFound, SessionState, VersionConflict
from everturn.adapters._shared.finite import refuse_non_finite_in
from everturn.adapters.google_adk.events import STATE

APP, USER, TEMP = "app:", "user:", "temp:"
FOLD = 64  # after so many changes the log is folded into one record
KNOWN = 256  # events whose ids a folded log keeps


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """Position in a shared log: its life, and the seq of its last entry. Without a life: no log yet."""

    life: str = ""
    seq: int = 0


class SharedState(msgspec.Struct, frozen=True):
    """Shared state as it was read: the values, and the events whose changes are in them."""

    session_id: str
    position: LogPosition
    values: dict[str, Any]
    merged: dict[str, int]  # the seq of an event's change, by event id
    forgotten: int  # up to this seq, ids of merged events are no longer kept

    def lacks(self, event: str, seen: LogPosition) -> bool:
        """Whether an event's change is surely not merged. `seen`: the position of the log that its writer knew.

        False if that is unknown: so many changes came since that it is too old to merge, or the state was erased.
        """
        return event not in self.merged and seen.life == self.position.life and self.forgotten <= seen.seq


class StateDelta(msgspec.Struct, frozen=True):
    """Changes of state by one event, split by owner. Keys are without prefixes."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]

    @property
    def whole(self) -> dict[str, Any]:
        """Changes in one dict, with ADK's prefixes in the keys."""
        return self.session | {APP + k: v for k, v in self.app.items()} | {USER + k: v for k, v in self.user.items()}


def state_delta(changes: Mapping[str, Any], path: str) -> StateDelta:
    """Return changes as JSON, split by owner. `temp:` keys are dropped.

    Models and dates become the JSON that ADK makes of them. Raises InvalidInput, with the key in its path, for a value
    that has no JSON form or would not come back equal. The store would refuse it as well, but with a path that the
    caller does not know, and after a shared log was begun. (Values nested too deep are left to the store to refuse.)
    """
    delta = StateDelta({}, {}, {})
    for name, value in changes.items():
        if name.startswith(TEMP):
            continue
        here = f"{path}[{name!r}]"
        try:
            kept = to_jsonable_python(value)
            msgspec.json.encode([name, kept])
        except ValueError as exc:  # Pydantic's, for a circular reference; or a lone surrogate
            raise InvalidInput(f"has no JSON form: {exc}", path=here) from exc
        refuse_non_finite_in(kept, here)
        if name.startswith(APP):
            delta.app[name.removeprefix(APP)] = kept
        elif name.startswith(USER):
            delta.user[name.removeprefix(USER)] = kept
        else:
            delta.session[name] = kept
    return delta


async def read_shared(store: AsyncMemoryStore, session_id: str) -> SharedState:
    """Return the shared state as it is now; empty if nobody has written it."""
    state = await store.state(session_id, kind=STATE)
    return _shared_state(state)


def _shared_state(state: SessionState) -> SharedState:
    values: dict[str, Any] = {}
    merged: dict[str, int] = {}
    forgotten = 0
    for record in state.records:
        values.update(record.body["delta"])
        merged.update(record.body.get("events", {}))
        forgotten = record.body.get("forgotten", forgotten)
        if "event" in record.body:
            merged[record.body["event"]] = record.seq or 0
    position = LogPosition(state.life, state.last_seq) if _is_begun(state) else LogPosition()
    return SharedState(state.session_id, position, values, merged, forgotten)


def _is_begun(state: SessionState) -> bool:
    """Whether both requests of `begin_log` are done. A TTL at a later version was set on purpose, and stays."""
    return state.version > 1 or state.ttl is None


async def begin_log(store: AsyncMemoryStore, session_id: str) -> LogPosition:
    """Begin a shared log, if nobody else has meanwhile, and return its start.

    An event refers to the life of the log that it changes, so that an old event cannot begin an erased log again.
    Repeated calls return the same position, because an event that is appended again must be equal.
    """
    begun: Receipt | SessionState
    try:
        begun = await store.append(session_id, [Record(STATE, {"delta": {}})], expected_version=0)
    except VersionConflict:
        state = await store.state(session_id, kind=STATE)
        if _is_begun(state):
            return LogPosition(state.life)
        begun = state
    # On a conflict, the other writer has removed the TTL, or will (in `merge_change`).
    await _never_expire(store, session_id, expected_version=begun)
    return LogPosition(begun.life)


async def _never_expire(
    store: AsyncMemoryStore, session_id: str, *, expected_version: Receipt | SessionState | None = None
) -> None:
    try:
        await store.set_ttl(session_id, None, expected_version=expected_version)
    except (VersionConflict, SessionNotFound):
        pass


async def merge_change(
    store: AsyncMemoryStore, session_id: str, event: str, delta: dict[str, Any], *, seen: LogPosition
) -> LogPosition:
    """Merge an event's change once, and return the log's new position. After every FOLD changes, fold the log.

    `seen`: the position that the event's writer knew. If the life differs, the log was erased, and this may begin it.
    """
    record = Record(STATE, {"event": event, "delta": delta})
    receipt = await store.append(session_id, [record], key=f"adk:{event}")
    if receipt.life != seen.life:
        await _never_expire(store, session_id)
    last = receipt.seqs[-1]
    if last % FOLD == 0 and not receipt.replayed:
        await _fold(store, session_id)
    return LogPosition(receipt.life, last)


async def _fold(store: AsyncMemoryStore, session_id: str) -> None:
    """Fold all changes into one record. If another change comes first, leave it to the next fold."""
    state = await store.state(session_id, kind=STATE)
    shared = _shared_state(state)
    events = list(shared.merged.items())
    forgotten = events[-KNOWN - 1][1] if len(events) > KNOWN else shared.forgotten
    body = {"delta": shared.values, "events": dict(events[-KNOWN:]), "forgotten": forgotten}
    try:
        await store.replace(session_id, [Record(STATE, body)], expected_version=state)
    except VersionConflict:
        return
    await store.compact(session_id)
