"""Changes as calls of scripts: requests to arguments, answers to outcomes. scripts.py chooses; lua/ does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everturn.backend import (
    MOST_FACTS,
    Action,
    Append,
    BeginEffect,
    ChangeOutcome,
    ChangeRequest,
    Clear,
    DeleteSnapshot,
    EndEffect,
    Fold,
    Rollback,
    SetFacts,
    SetTTL,
    Status,
    TakeSnapshot,
    Trim,
    Undo,
)
from everturn.backends.redis import effects, scripts
from everturn.backends.redis.scripts import Script
from everturn.backends.redis.stored_form import MICROSECONDS, kept_text
from everturn.errors import CorruptEntry
from everturn.model import Snapshot

_STATUSES = {status.value.encode(): status for status in Status}
_APPLIED = Status.APPLIED, Status.REPLAYED
_encode = msgspec.json.encode
_RECEIPT = 5  # words of an answer that is a plain receipt


def call_for(request: ChangeRequest, *, waits: bool) -> tuple[Script, list[Any]]:
    """Choose the script that carries out a change, and make its arguments. `waits`: replicas are waited for."""
    kind = type(request.action)
    return scripts.OF_ACTION[kind], [
        *common_args(request, waits=waits),
        *_ARGUMENTS[kind](request.action),
        lease_arg(request),
    ]


def common_args(request: ChangeRequest, *, waits: bool) -> list[Any]:
    """Make the arguments that every change has, as _change.lua reads them."""
    version, life = request.expected_version, request.expected_life
    return [
        request.call,
        request.life,
        b"" if request.ttl is None else repr(request.ttl),
        request.key or b"",
        request.content or b"",
        b"" if version is None else version,
        b"-" if life is None else life,
        b"r" if request.retry else b"",
        b"w" if waits else b"",
    ]


def lease_arg(request: ChangeRequest) -> bytes | str:
    """Make the argument that stands behind all others of a change: the lease that it names, empty for none."""
    return b"" if request.lease is None else f"{request.lease.token} {request.lease.holder}"


def _append(action: Append) -> list[Any]:
    after: Any = b"" if action.after is None else action.after
    drafts = action.drafts
    if action.carried is not None:
        after, drafts = f"{after} {len(action.carried)}", (*action.carried, *drafts)
    values: list[bytes | str] = [b"%d %b" % (draft.checksum, draft.body) for draft in drafts]
    if action.messages < len(values):
        values = [part for draft, value in zip(drafts, values, strict=True) for part in (draft.kind, value)]
    return [
        after,
        b"" if action.dimension is None else action.dimension,
        action.messages,
        sum([len(draft.body) for draft in drafts]),
        *values,
    ]


def _fold(action: Fold) -> list[Any]:
    draft = action.draft
    dimension = "" if draft.dimension is None else draft.dimension
    return [*_trim(action), dimension, len(draft.body), b"%d %b" % (draft.checksum, draft.body)]


def _trim(action: Trim | Fold) -> list[Any]:
    seen = action.seen
    return [
        seen.head,
        f"{seen.cleared} {seen.floor} {kept_text(seen.kept)}",
        "" if action.floor is None else action.floor,
        kept_text(action.kept),
        action.hidden,
        action.life,
    ]


def _facts(action: SetFacts) -> list[Any]:
    pairs = [(_encode(name), b"" if value is None else _encode(value)) for name, value in action.facts]
    return [action.label, MOST_FACTS, *(part for pair in pairs for part in pair)]


_ARGUMENTS: dict[type[Action], Callable[[Any], list[Any]]] = {
    Append: _append,
    Trim: _trim,
    Fold: _fold,
    Clear: lambda _: [],
    TakeSnapshot: lambda action: [action.snapshot_id, "" if action.label is None else "1", action.label or ""],
    DeleteSnapshot: lambda action: [action.snapshot_id],
    Rollback: lambda action: [action.snapshot_id or "", 0 if action.version is None else action.version],
    Undo: lambda action: ["1" if action.drop_turns else ""],
    SetTTL: lambda action: ["" if action.seconds is None else repr(action.seconds)],
    SetFacts: _facts,
    BeginEffect: effects.begin_args,
    EndEffect: effects.end_args,
}
"""The arguments of each action, behind the common ones, as its script in lua/ reads them."""


def outcome_of(reply: bytes, session_id: str, action: Action) -> ChangeOutcome:
    """Read the answer to a change. Raises CorruptEntry if the session has lost its meta."""
    parts = reply.split(b" ")
    if len(parts) == _RECEIPT and parts[0] == b"applied":
        return ChangeOutcome(Status.APPLIED, parts[1].decode(), int(parts[2]), int(parts[3]), int(parts[4]))
    line, newline, label = reply.partition(b"\n")
    word, life_named, version_named, first, count, *rest = line.split(b" ")
    if word == b"damaged":
        raise damaged_session(session_id)
    status = _STATUSES[word]
    life, version = life_named.decode(), int(version_named)
    row = None
    if isinstance(action, BeginEffect | EndEffect) and newline and status is not Status.REPLAYED:
        row = effects.told_effect(action, label)
    if status not in _APPLIED:
        life = "" if life == "-" else life
        return ChangeOutcome(status, life, version, int(first), int(count), detail=int(rest[0] or 0), effect=row)
    snapshot = None
    if isinstance(action, TakeSnapshot):
        name, at, messages = rest
        named = label.decode() if newline else None
        snapshot = Snapshot(name.decode(), session_id, life, named, version, int(messages), int(at) / MICROSECONDS)
    return ChangeOutcome(status, life, version, int(first), int(count), snapshot, effect=row)


def damaged_session(session_id: str, part: str = "meta") -> CorruptEntry:
    """Make the error for a session of which a part is missing or damaged while others are there."""
    return CorruptEntry(
        f"session {session_id!r}: its part {part!r} is gone or not what was written, but others are there. Was it "
        "evicted (see maxmemory-policy) or changed by hand? Nothing was changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )
