"""State that an app's or a user's sessions share, in an everturn session of its own: a log of what events changed.

An event and what it changes here are in different sessions, so that no one request writes both. The event is first: it
carries the change, and a change that did not get here is brought by whoever loads the event's session next. A change is
keyed by its event, so that it is merged once; the latest merged wins. What a session's own state is, its entries tell.

It never expires, whatever the store's `ttl` is: sessions that go on refresh only themselves. So a log is begun in two
requests, of which the second takes its TTL away, and only then do events name its life.
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
FOLD = 64  # changes that are read one by one before they are made one
KNOWN = 256  # events that a folded log remembers by name


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a shared log stood: its life, and the seq of its last entry."""

    life: str = ""
    seq: int = 0


class SharedState(msgspec.Struct, frozen=True):
    """A shared state as it was read: its values, and which events' changes are in them."""

    session_id: str
    position: LogPosition
    values: dict[str, Any]
    merged: dict[str, int]  # the seq of an event's change, by the event
    forgotten: int  # changes up to this seq are in the values, but no longer known by their event

    def lacks(self, event: str, seen: LogPosition) -> bool:
        """Whether an event's change is surely not in it. `seen` is where the event's writer had seen it.

        Not sure is no: so many changes have come since that it is too old to be merged; or the state was erased.
        """
        return event not in self.merged and seen.life == self.position.life and self.forgotten <= seen.seq


class StateDelta(msgspec.Struct, frozen=True):
    """What an event changes, by whose state it is."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]

    @property
    def whole(self) -> dict[str, Any]:
        """As ADK writes it, with prefixes."""
        return self.session | {APP + k: v for k, v in self.app.items()} | {USER + k: v for k, v in self.user.items()}


def state_delta(changes: Mapping[str, Any], path: str) -> StateDelta:
    """The changes as JSON, sorted by whose they are; `temp:` ones are nobody's.

    Models and dates become the JSON that ADK makes of them. Raises InvalidInput, naming the key, for what has none or
    would not come back equal: the store would refuse it too, but by a path that the caller never wrote, and after a
    shared log was begun for it. (So it does what is nested too deep; how deep that is, is the store's to say.)
    """
    delta = StateDelta({}, {}, {})
    for name, value in changes.items():
        if name.startswith(TEMP):
            continue
        here = f"{path}[{name!r}]"
        try:
            kept = to_jsonable_python(value)
            msgspec.json.encode([name, kept])
        except ValueError as exc:  # Pydantic's own, of a circle; of a lone surrogate
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
    """The shared state as it is now; one that nobody wrote is empty."""
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
    """Whether both requests of `begin` are done. A TTL of a later version is one that somebody wants there."""
    return state.version > 1 or state.ttl is None


async def begin_log(store: AsyncMemoryStore, session_id: str) -> LogPosition:
    """The beginning of a shared log that was not there when it was looked for: now it is.

    So that an event can tell which life of it it changes: one that was erased is not begun again by old events.
    The answer is the same however often it is asked, as an event that is appended again has to be.
    """
    begun: Receipt | SessionState
    try:
        begun = await store.append(session_id, [Record(STATE, {"delta": {}})], expected_version=0)
    except VersionConflict:
        state = await store.state(session_id, kind=STATE)
        if _is_begun(state):
            return LogPosition(state.life)
        begun = state
    # A conflict: whoever changed it since has done the same, or will (see `merge`).
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
    """Merge an event's change, once. Every so often the log is made short again.

    `seen` is where the event's writer had seen the log. Of another life, it was erased since, and this may begin it.
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
    """Make one record of all. Whoever changes the state meanwhile goes first; the next in turn folds."""
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
