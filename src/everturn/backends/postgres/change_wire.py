"""Changes on the wire: requests as the JSON that `change_v1` takes, and its rows as outcomes. Pure.

The bodies of entries travel beside the JSON, as texts: they are stored byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from everturn.backend import (
    Append,
    ChangeOutcome,
    ChangeRequest,
    DeleteSnapshot,
    ForkRequest,
    Rollback,
    SetFloor,
    SetTTL,
    Status,
    TakeSnapshot,
    Undo,
)
from everturn.backends.postgres.libpq_append import Texts
from everturn.model import Snapshot

LATE = "late"
"""Status of a request that was not applied: its caller had gone, or it was issued before a fence (35-late.sql)."""

_STATUS = {status.value: status for status in Status}
_encode = msgspec.json.Encoder().encode


class _Wire(msgspec.Struct, omit_defaults=True, gc=False):
    """The type request_v1 of schema/001/3-plans.sql; what is left out is NULL there."""

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
    checksums: list[int] | None = None
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


class Window(NamedTuple):
    """Moments of a request: on the server's clock, when it was issued and after which it must not be applied; on ours
    (monotonic), when it was sent."""

    issued: float
    not_after: float
    sent: float


def encode(requests: Sequence[ChangeRequest], windows: Sequence[Window]) -> tuple[str, Texts]:
    """The requests as JSON, and the bodies of all their entries."""
    bodies = [
        draft.body for request in requests if isinstance(request.effect, Append) for draft in request.effect.drafts
    ]
    return _encode(list(map(_wire, requests, windows))).decode(), Texts(bodies)


def size_of(request: ChangeRequest) -> int:
    """How many bytes the entries of a change have."""
    effect = request.effect
    return sum([len(draft.body) for draft in effect.drafts]) if type(effect) is Append else 0


def is_plain(request: ChangeRequest) -> bool:
    """Whether it is the change that nearly all are: see append_v1."""
    effect = request.effect
    return (
        type(effect) is Append
        and effect.after is None
        and 0 < effect.messages == len(effect.drafts)
        and request.key is None
        and request.expected_version is None
        and request.expected_life is None
        and not request.retry
    )


def encode_plain(request: ChangeRequest) -> tuple[Any, ...]:
    """The parameters of append_v1, behind the namespace and before the patience."""
    drafts = request.effect.drafts  # type: ignore[union-attr]  # is_plain said that it is an Append
    bodies, checksums = Texts([draft.body for draft in drafts]), array([draft.checksum for draft in drafts])
    return request.session_id, request.call, request.ttl, bodies, checksums


def are_plain(requests: Sequence[ChangeRequest]) -> bool:
    """Whether all are such changes, each of another session: see append_many_v1."""
    return all(map(is_plain, requests)) and len({request.session_id for request in requests}) == len(requests)


def encode_many(requests: Sequence[ChangeRequest]) -> tuple[Any, ...]:
    """The parameters of append_many_v1, behind the namespace and before the patience."""
    turns = [request.effect.drafts for request in requests]  # type: ignore[union-attr]  # as above
    drafts = [draft for turn in turns for draft in turn]
    return (
        Texts([request.session_id.encode() for request in requests]),
        Texts([request.call.hex().encode() for request in requests]),
        array(map(len, turns)),
        array(sum([len(draft.body) for draft in turn]) for turn in turns),
        requests[0].ttl,  # the store's, for all
        Texts([draft.body for draft in drafts]),
        array(draft.checksum for draft in drafts),
        array(place for place, turn in enumerate(turns, 1) for _ in turn),
    )


def array(numbers: Iterable[float]) -> str:
    """Numbers as the text of an array: psycopg's own lists cost more than the rest of a request together."""
    return "{" + ",".join(map(str, numbers)) + "}"


def answer(request: ChangeRequest | ForkRequest, row: Any) -> tuple[ChangeOutcome | None, float]:
    """What a row of outcome_v1 says of a request (None: it came too late, and was not applied), and the server's time.

    The row is outcome_v1 as text, or its columns. In the text no value needs quotes but the life that is none.
    """
    if len(row) == 1:
        status, life, version, first_seq, count, detail, *_, told = row[0][1:-1].split(",")
        if status == LATE:
            return None, float(told)
        life = "" if life == '""' else life
        outcome = ChangeOutcome(_STATUS[status], life, int(version), int(first_seq), int(count), None, int(detail))
        return outcome, float(told)
    status, life, version, first_seq, count, detail, snapshot_id, label, messages, created_at, told = row
    if status == LATE:
        return None, told
    snapshot = None
    if (
        isinstance(request, ChangeRequest)
        and isinstance(request.effect, TakeSnapshot)
        and status in ("applied", "replayed")
    ):
        snapshot = Snapshot(snapshot_id, request.session_id, life, label, version, messages, created_at)
    return ChangeOutcome(_STATUS[status], life, version, first_seq, count, snapshot, detail), told


def encode_fork(request: ForkRequest, window: Window) -> str:
    wire = _Wire(request.target, "fork", _hex(request.call), 0)
    wire.ttl = request.ttl
    _expect(wire, request, window)
    return _encode(wire).decode()


def _hex(digest: bytes) -> str:
    return "\\x" + digest.hex()


def _expect(wire: _Wire, request: ChangeRequest | ForkRequest, window: Window) -> None:
    wire.retry = request.retry
    wire.issued, wire.not_after, _ = window
    wire.expected_version = request.expected_version
    wire.expected_life = request.expected_life
    if request.key is not None and request.content is not None:
        wire.key = _hex(request.key)
        wire.content = _hex(request.content)


def _wire(request: ChangeRequest, window: Window) -> _Wire:
    effect = request.effect
    wire = _Wire(request.session_id, effect.kind, _hex(request.call), 0)
    wire.ttl = request.ttl
    _expect(wire, request, window)
    match effect:
        case Append():
            drafts = effect.drafts
            wire.entries = len(drafts)
            wire.checksums = [draft.checksum for draft in drafts]
            wire.messages = effect.messages
            wire.dimension = effect.dimension
            wire.after = effect.after
            if effect.messages != len(drafts):
                wire.kinds = [draft.kind for draft in drafts]
        case SetFloor(seen=seen):
            wire.floor, wire.kept, wire.hidden = effect.floor, effect.kept, effect.hidden
            wire.seen_life, wire.seen_head, wire.seen_cleared = effect.life, seen.head, seen.cleared
            wire.seen_floor, wire.seen_kept = seen.floor, seen.kept
        case TakeSnapshot():
            wire.snapshot_id, wire.label = effect.snapshot_id, effect.label
        case DeleteSnapshot() | Rollback():
            wire.snapshot_id = effect.snapshot_id
        case Undo():
            wire.drop_turns = effect.drop_turns
        case SetTTL():
            wire.seconds = effect.seconds
    return wire
