"""Changes on the wire: requests as parameters of `change_v5`, and rows as outcomes. Pure.

Fields that every change has travel as arrays, the rest as JSON. Bodies of entries are texts, stored byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from everturn.backend import (
    Append,
    BeginEffect,
    ChangeOutcome,
    ChangeRequest,
    DeleteSnapshot,
    Draft,
    EffectsReading,
    EndEffect,
    Fold,
    ForkRequest,
    Rollback,
    SetFacts,
    SetTTL,
    Status,
    StoredEffect,
    TakeSnapshot,
    Trim,
    Undo,
)
from everturn.backends.postgres.arrays import ByteStrings, Texts, numbers
from everturn.model import Snapshot

LATE = "late"
"""Status of a request that was not applied: its caller had gone, or it was issued before a fence."""

_STATUS = {status.value: status for status in Status}
_encode = msgspec.json.Encoder().encode


class _Wire(msgspec.Struct, omit_defaults=True, gc=False):
    """The type request_v1 of schema/tables/; a field that is left out is NULL there."""

    session_id: str
    kind: str
    call: str
    entries: int = -1
    ttl: float | None = None
    key: str | None = None
    content: str | None = None
    expected_version: int | None = None
    expected_life: str | None = None
    retry: bool = False
    issued: float = 0.0
    not_after: float = 0.0
    kinds: list[str] | None = None
    messages: int | None = None
    dimension: int | None = None
    after: int | None = None
    floor: int | None = None
    kept: tuple[int, ...] | None = None
    hidden: int | None = None
    seen_life: str | None = None
    seen_head: int | None = None
    seen_cleared: int | None = None
    seen_floor: int | None = None
    seen_kept: tuple[int, ...] | None = None
    snapshot_id: str | None = None
    label: str | None = None
    drop_turns: bool = False
    seconds: float | None = None
    to_version: int | None = None
    lease_token: int | None = None
    lease_holder: str | None = None
    effect_attempt: int | None = None
    effect_body: str | None = None
    effect_by: str | None = None
    effect_note: str | None = None
    facts: dict[str, str | None] | None = None
    carried: int | None = None


class _EffectWire(msgspec.Struct, frozen=True, gc=False):
    """An effect as effect_json_v3 writes it."""

    key: str
    status: str
    attempt: int
    began: int
    ended: int
    token: int
    by: str
    at: float
    ended_at: float | None
    request: str | None
    result: str | None
    error: str | None
    note: str | None
    held: bool

    @classmethod
    def of(cls, row: StoredEffect) -> _EffectWire:
        request, result, error = (
            None if body is None else body.decode() for body in (row.request, row.result, row.error)
        )
        facts = (row.began, row.ended, row.token, row.by, row.at, row.ended_at)
        return cls(row.key, row.status, row.attempt, *facts, request, result, error, row.note, row.held)

    @property
    def row(self) -> StoredEffect:
        request, result, error = (
            None if text is None else text.encode() for text in (self.request, self.result, self.error)
        )
        facts = (self.began, self.ended, self.token, self.by, self.at, self.ended_at)
        return StoredEffect(
            self.key, self.status, self.attempt, *facts, request, result, error, self.note, held=self.held
        )


class _EffectsWire(msgspec.Struct, frozen=True, gc=False):
    """The answer of effects_v3."""

    life: str
    version: int
    effects: list[_EffectWire]


def effects_text(rows: Iterable[StoredEffect]) -> str:
    """Write effects as the JSON that restore_v3 takes."""
    return _encode(list(map(_EffectWire.of, rows))).decode()


_decode_effect = msgspec.json.Decoder(_EffectWire).decode
_decode_effects = msgspec.json.Decoder(_EffectsWire).decode


def effects_in(rows: Any) -> EffectsReading:
    """Read the row of effects_v3."""
    ((text,),) = rows
    if text is None:
        return EffectsReading()
    told = _decode_effects(text)
    return EffectsReading(told.life, told.version, tuple(effect.row for effect in told.effects))


class RequestWindow(NamedTuple):
    """Moments of a request: on the server's clock, when it was issued and after which it must not be applied; on ours
    (monotonic), when it was sent."""

    issued: float
    not_after: float
    sent: float


def encode(requests: Sequence[ChangeRequest], windows: Sequence[RequestWindow]) -> tuple[Any, ...]:
    """Give the parameters of change_v5 that tell of the changes: those behind the namespace and before the patience."""
    entries, sizes, bodies, checksums = [], [], [], []
    ttl, is_all_plain, has_conditions = None, True, False
    for request in requests:
        size = 0
        turn = _written(request)
        for draft in turn:
            size += len(draft.body)
            bodies.append(draft.body)
            checksums.append(draft.checksum)
        entries.append(len(turn))
        sizes.append(size)
        if _is_plain(request):
            ttl = request.ttl  # of the store: all of them have the same
        else:
            is_all_plain = False
        if request.expected_version is not None or request.expected_life is not None or request.lease is not None:
            has_conditions = True
    # What turns expect stands beside the rest, not in it: the rest of a turn is empty, whatever it is sent along with.
    return (
        Texts([request.session_id.encode() for request in requests]),
        ByteStrings([request.call for request in requests]),
        ttl,
        numbers(entries),
        numbers(sizes),
        Texts(bodies),
        numbers(checksums),
        *(_conditions(requests) if has_conditions else (None, None, None, None)),
        None if is_all_plain else _encode(list(map(_rest, requests, windows))).decode(),
    )


def _conditions(requests: Sequence[ChangeRequest]) -> tuple[str | None, Texts | None, str | None, Texts | None]:
    """Versions and lives that turns of messages expect, tokens and holders of the leases that they name."""
    versions = [request.expected_version for request in requests]
    lives = [request.expected_life for request in requests]
    leases = [request.lease for request in requests]
    is_led = leases.count(None) < len(leases)
    return (
        None
        if versions.count(None) == len(versions)
        else numbers("NULL" if number is None else number for number in versions),
        None if lives.count(None) == len(lives) else Texts([(life or "").encode() for life in lives]),
        numbers("NULL" if lease is None else lease.token for lease in leases) if is_led else None,
        Texts([(lease.holder if lease else "").encode() for lease in leases]) if is_led else None,
    )


def _written(request: ChangeRequest) -> tuple[Draft, ...]:
    """All entries that a change writes, in order."""
    action = request.action
    if isinstance(action, Append):
        return (*action.carried, *action.drafts) if action.carried else action.drafts
    return action.drafts if isinstance(action, Fold) else ()


def size_of(request: ChangeRequest) -> int:
    """Count the bytes of the entries of a change."""
    return sum([len(draft.body) for draft in _written(request)])


def _is_plain(request: ChangeRequest) -> bool:
    """Whether a change has nothing but its arrays: a turn of messages without a key. (A session that is expected
    not to be there has the life ''.)"""
    action = request.action
    return (
        type(action) is Append
        and action.after is None
        and 0 < action.messages == len(action.drafts)
        and request.key is None
        and request.expected_life != ""
        and not request.retry
    )


def answer(request: ChangeRequest | ForkRequest, row: Any) -> tuple[ChangeOutcome | None, float]:
    """Read the outcome of a request (None: it came too late, and was not applied) and the server's time from a row of
    outcome_v1."""
    status, life, version, first_seq, count, detail, snapshot_id, label, messages, created_at, told = row
    if status == LATE:
        return None, told
    snapshot = None
    if (
        isinstance(request, ChangeRequest)
        and isinstance(request.action, TakeSnapshot)
        and status in ("applied", "replayed")
    ):
        snapshot = Snapshot(snapshot_id, request.session_id, life, label, version, messages, created_at)
    row = None
    is_about_effect = isinstance(request, ChangeRequest) and isinstance(request.action, BeginEffect | EndEffect)
    if is_about_effect and label is not None and status != "replayed":
        row = _decode_effect(label).row
    return ChangeOutcome(_STATUS[status], life, version, first_seq, count, snapshot, detail, row), told


def encode_fork(request: ForkRequest, window: RequestWindow) -> str:
    """Give the JSON that fork_v1 takes."""
    wire = _Wire(request.target, "fork", _hex(request.call), 0)
    wire.ttl = request.ttl
    _expect(wire, request, window)
    return _encode(wire).decode()


def _hex(digest: bytes) -> str:
    return "\\x" + digest.hex()


def _expect(wire: _Wire, request: ChangeRequest | ForkRequest, window: RequestWindow) -> None:
    wire.retry = request.retry
    wire.issued, wire.not_after, _ = window
    wire.expected_version = request.expected_version
    wire.expected_life = request.expected_life
    if isinstance(request, ChangeRequest) and request.lease is not None:
        wire.lease_token, wire.lease_holder = request.lease.token, request.lease.holder or None
    if request.key is not None and request.content is not None:
        wire.key = _hex(request.key)
        wire.content = _hex(request.content)


def _rest(request: ChangeRequest, window: RequestWindow) -> _Wire | dict[str, str]:
    if _is_plain(request):
        return {}
    action = request.action
    wire = _Wire(request.session_id, action.kind, _hex(request.call), 0)
    wire.ttl = request.ttl
    _expect(wire, request, window)
    match action:
        case Append():
            written = _written(request)
            wire.entries = len(action.drafts)
            wire.messages = action.messages
            wire.dimension = action.dimension
            wire.after = action.after
            if action.messages != len(written):
                wire.kinds = [draft.kind for draft in written]
            if action.after is not None:
                wire.carried = -1 if action.carried is None else len(action.carried)
        case Trim(seen=seen) | Fold(seen=seen):
            if isinstance(action, Fold):
                wire.entries, wire.messages, wire.dimension = 1, 0, action.dimension
                wire.kinds = [action.draft.kind]
            wire.floor, wire.kept, wire.hidden = action.floor, action.kept, action.hidden
            wire.seen_life, wire.seen_head, wire.seen_cleared = action.life, seen.head, seen.cleared
            wire.seen_floor, wire.seen_kept = seen.floor, seen.kept
        case TakeSnapshot():
            wire.snapshot_id, wire.label = action.snapshot_id, action.label
        case DeleteSnapshot():
            wire.snapshot_id = action.snapshot_id
        case Rollback():
            wire.snapshot_id, wire.to_version, wire.label = action.snapshot_id, action.version, action.label
        case Undo():
            wire.drop_turns = action.drop_turns
        case SetTTL():
            wire.seconds = action.seconds
        case SetFacts():
            wire.facts, wire.label = dict(action.facts), action.label
        case BeginEffect():
            wire.label, wire.effect_attempt, wire.effect_by = action.key, action.repeats, action.by
            wire.effect_body = None if action.request is None else action.request.decode()
        case EndEffect():
            wire.label, wire.effect_attempt, wire.effect_note = action.key, action.attempt, action.note
            wire.effect_body = None if action.body is None else action.body.decode()
    return wire
