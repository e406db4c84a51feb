"""Parts of a session, in a form that belongs to no backend: one backend hands them over, another takes them. Pure.

A session is an outline, the entries of its log in seq order, and its remembered changes in version order. Each part can
be a line of JSON (`encode`, `decode`); docs/storage.md promises their format.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from everturn.core.codec import EntryRow
from everturn.core.effects import FAILED, FINISHED, StoredEffect
from everturn.core.paths import Jump, State

_decode_json = msgspec.json.decode


class SnapshotPart(msgspec.Struct, frozen=True, gc=False):
    """A snapshot, and the state it points to."""

    id: str
    label: str | None
    version: int
    created_at: float
    state: State


class UndoPart(msgspec.Struct, frozen=True, gc=False):
    """An undo step: the change of `version`, the head right after it, how many messages it hid, the state before it."""

    version: int
    kind: str
    moved_to: int
    hidden: int
    before: State


class EffectPart(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An effect, as core/effects.py explains it; its request, result and error stand there as JSON."""

    key: str
    status: str
    attempt: int
    began: int
    at: float
    by: str
    ended: int = 0
    ended_at: float | None = None
    token: int = 0
    request: Any = None
    result: Any = None
    error: Any = None
    note: str | None = None

    @classmethod
    def of(cls, row: StoredEffect) -> EffectPart:
        """Make the part of a stored row."""
        request, result, error = (None if b is None else _decode_json(b) for b in (row.request, row.result, row.error))
        facts = (row.key, row.status, row.attempt, row.began, row.at, row.by, row.ended, row.ended_at, row.token)
        return cls(*facts, request, result, error, row.note)

    @property
    def row(self) -> StoredEffect:
        """Row to store. A finished effect has a result, which may be null."""
        request = None if self.request is None else encode(self.request)
        result = encode(self.result) if self.status == FINISHED else None
        error = encode(self.error) if self.status == FAILED else None
        facts = (self.began, self.ended, self.token, self.by, self.at, self.ended_at)
        return StoredEffect(self.key, self.status, self.attempt, *facts, request, result, error, self.note)


class Outline(msgspec.Struct, frozen=True, gc=False, tag_field="part", tag="session"):
    """Everything of one life of a session but its log and its changes, as it was at one moment.

    `call` is the call id of the change that made `version`: two outlines with the same life, version and call have the
    same past. Times are seconds since 1970; `seen_at` is the moment, by the clock that `expires_at` goes by.
    """

    session_id: str
    life: str
    version: int
    call: bytes
    last_seq: int
    state: State
    created_at: float
    changed_at: float
    seen_at: float
    ttl: float | None = None
    expires_at: float | None = None
    dimension: int | None = None
    forked_from: str | None = None
    jumps: tuple[Jump, ...] = ()  # oldest first
    snapshots: tuple[SnapshotPart, ...] = ()  # in the order they were taken
    undo_steps: tuple[UndoPart, ...] = ()  # oldest first
    effects: tuple[EffectPart, ...] = ()  # in the order in which they were begun
    facts: dict[str, str] = {}
    form: Literal[1] = 1

    @property
    def roots(self) -> list[State]:
        """States that the session can return to."""
        return [
            self.state,
            *(snapshot.state for snapshot in self.snapshots),
            *(step.before for step in self.undo_steps),
        ]


class EntryPart(msgspec.Struct, frozen=True, gc=False, tag_field="part", tag="entry"):
    """A stored entry. Its body is JSON, and stands in a line as it is stored, byte for byte."""

    seq: int
    turn: int  # seq of the first entry of its turn
    kind: str
    created_at: float
    checksum: int  # codec.checksum
    body: msgspec.Raw

    @classmethod
    def of(cls, row: EntryRow) -> EntryPart:
        """Make the part of a stored row."""
        seq, created_at, check, body, kind, turn = row
        return cls(seq, turn, kind, created_at, check, msgspec.Raw(body))

    @property
    def size(self) -> int:
        """Size of the body, in bytes."""
        return len(memoryview(self.body))


class ChangePart(msgspec.Struct, frozen=True, gc=False, tag_field="part", tag="change"):
    """A remembered change, and the state after it. `readable` is False once something it shows has been reclaimed.

    `key` and `content` are the digests of a caller's key and of what it was used with.
    """

    version: int
    kind: str
    first_seq: int
    count: int
    created_at: float
    call: bytes
    state: State
    readable: bool = True
    key: bytes | None = None
    content: bytes | None = None
    snapshot_id: str | None = None
    label: str | None = None


Part: TypeAlias = Outline | EntryPart | ChangePart


class Portion(msgspec.Struct, frozen=True, gc=False):
    """Some entries and some changes, each in order. Changes come once no entry is left; `is_last`: nothing is left."""

    entries: tuple[EntryPart, ...] = ()
    changes: tuple[ChangePart, ...] = ()
    is_last: bool = True


encode = msgspec.json.Encoder().encode
"""Encode a part as a line of JSON, without the newline."""

decode = msgspec.json.Decoder(Part).decode
"""Decode the part in a line. Raises msgspec.MsgspecError if there is none."""
