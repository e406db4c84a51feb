"""Changes as calls of scripts: a request to arguments, an answer to an outcome. What a change does is in lua/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everturn.backend import (
    Append,
    ChangeOutcome,
    ChangeRequest,
    Clear,
    DeleteSnapshot,
    Effect,
    Rollback,
    SetFloor,
    SetTTL,
    Status,
    TakeSnapshot,
    Undo,
)
from everturn.backends.redis import scripts
from everturn.backends.redis.scripts import Script
from everturn.backends.redis.stored_form import MICROSECONDS, kept_text
from everturn.errors import CorruptEntry
from everturn.model import Snapshot

_STATUSES = {status.value.encode(): status for status in Status}
_APPLIED = Status.APPLIED, Status.REPLAYED
_RECEIPT = 5  # words of an answer that is a receipt and no more


def call_for(request: ChangeRequest, now: str, *, waits: bool) -> tuple[Script, list[Any]]:
    """The script that carries a change out, and its arguments."""
    effect = request.effect
    if (
        type(effect) is Append
        and not now
        and request.key is None
        and not request.retry
        and request.expected_version is None
        and request.expected_life is None
        and effect.after is None
        and effect.messages == len(effect.drafts) > 0
    ):
        # A turn of messages only, without a key or a condition, and the first attempt: turn.lua's case. It is given no
        # more than it needs: an argument costs the server and us as much as ten bytes of a message.
        size, bodies = 0, []
        for draft in effect.drafts:
            size += len(draft.body)
            bodies.append(b"%d %b" % (draft.checksum, draft.body))
        ttl = b"" if request.ttl is None else repr(request.ttl).encode()
        return scripts.TURN, [request.call, ttl, b"%d" % size, *bodies]
    script, own = _EFFECTS[type(effect)](effect)
    return script, head_of(request, waits=waits) + own


def head_of(request: ChangeRequest, *, waits: bool) -> list[Any]:
    """The arguments that every change has, as change.lua reads them."""
    version, life = request.expected_version, request.expected_life
    return [
        request.call,
        request.life,
        "" if request.ttl is None else repr(request.ttl),
        request.key or b"",
        request.content or b"",
        "" if version is None else version,
        "-" if life is None else life,
        "r" if request.retry else "",
        "w" if waits else "",
    ]


def _append(effect: Append) -> tuple[Script, list[Any]]:
    args: list[Any] = [
        "" if effect.after is None else effect.after,
        "" if effect.dimension is None else effect.dimension,
        effect.messages,
        sum([len(draft.body) for draft in effect.drafts]),
    ]
    for draft in effect.drafts:
        args.append(draft.kind)
        args.append(b"%d %b" % (draft.checksum, draft.body))
    return scripts.APPEND, args


def _set_floor(effect: SetFloor) -> tuple[Script, list[Any]]:
    seen = effect.seen
    return scripts.SET_FLOOR, [
        seen.head,
        f"{seen.cleared} {seen.floor} {kept_text(seen.kept)}",
        "" if effect.floor is None else effect.floor,
        kept_text(effect.kept),
        effect.hidden,
        effect.life,
    ]


def _take_snapshot(effect: TakeSnapshot) -> tuple[Script, list[Any]]:
    return scripts.SNAPSHOT, [effect.snapshot_id, "" if effect.label is None else "1", effect.label or ""]


def _undo(effect: Undo) -> tuple[Script, list[Any]]:
    return scripts.UNDO, ["1" if effect.drop_turns else ""]


def _set_ttl(effect: SetTTL) -> tuple[Script, list[Any]]:
    return scripts.TTL, ["" if effect.seconds is None else repr(effect.seconds)]


def _clear(_effect: Clear) -> tuple[Script, list[Any]]:
    return scripts.CLEAR, []


def _delete_snapshot(effect: DeleteSnapshot) -> tuple[Script, list[Any]]:
    return scripts.DELETE_SNAPSHOT, [effect.snapshot_id]


def _rollback(effect: Rollback) -> tuple[Script, list[Any]]:
    return scripts.ROLLBACK, [effect.snapshot_id]


_EFFECTS: dict[type[Effect], Callable[[Any], tuple[Script, list[Any]]]] = {
    Append: _append,
    SetFloor: _set_floor,
    Clear: _clear,
    TakeSnapshot: _take_snapshot,
    DeleteSnapshot: _delete_snapshot,
    Rollback: _rollback,
    Undo: _undo,
    SetTTL: _set_ttl,
}


def outcome_of(reply: bytes, session_id: str, effect: Effect) -> ChangeOutcome:
    """What became of a change. Raises CorruptEntry if the session has lost its meta."""
    parts = reply.split(b" ")
    if len(parts) == _RECEIPT and parts[0] == b"applied":
        return ChangeOutcome(Status.APPLIED, parts[1].decode(), int(parts[2]), int(parts[3]), int(parts[4]))
    line, newline, label = reply.partition(b"\n")
    word, life_named, version_named, first, count, *rest = line.split(b" ")
    if word == b"headless":
        raise headless(session_id)
    status = _STATUSES[word]
    life, version = life_named.decode(), int(version_named)
    if status not in _APPLIED:
        return ChangeOutcome(status, "" if life == "-" else life, version, detail=int(rest[0] or 0))
    snapshot = None
    if isinstance(effect, TakeSnapshot):
        name, at, messages = rest
        named = label.decode() if newline else None
        snapshot = Snapshot(name.decode(), session_id, life, named, version, int(messages), int(at) / MICROSECONDS)
    return ChangeOutcome(status, life, version, int(first), int(count), snapshot)


def headless(session_id: str, part: str = "meta") -> CorruptEntry:
    """The error for a session one of whose parts is gone or damaged while others are there: evicted, or deleted."""
    return CorruptEntry(
        f"session {session_id!r}: its part {part!r} is gone or not what was written, but others are there. Was it "
        "evicted (see maxmemory-policy) or changed by hand? Nothing was changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )
