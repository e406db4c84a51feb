"""Checks the parts of a session that come from a file, as the arguments of a change are checked. Pure.

lineage.py checks that the parts belong together and none is missing.
"""

from __future__ import annotations

import re

import msgspec

from everturn.core import codec
from everturn.core.effects import FAILED, FINISHED, STARTED
from everturn.core.paths import State
from everturn.errors import InvalidInput
from everturn.model import MESSAGE, SUMMARY, TOOL_CALL
from everturn.store.arguments import LARGEST_COUNT, checked_id, checked_label, checked_snapshot
from everturn.store.facts import checked_where
from everturn.transfer.session_lines import ChangePart, EffectPart, EntryPart, Outline, SnapshotPart, UndoPart

LATEST = 10**11  # seconds since 1970, and the longest TTL: as far as options go
DIGEST = 16  # bytes of a call's id, and of the digests of keys and contents
CHANGES = frozenset(
    ("append", "replace", "trim", "fold", "clear", "snapshot", "delete_snapshot", "rollback", "undo", "ttl", "fork")
) | {"begin_effect", "finish_effect", "fail_effect", "facts"}
UNDOABLE = frozenset(("rollback", "replace", "trim", "fold", "clear"))
MOST_ATTEMPTS = 10**9
_LIFE = re.compile(r"[0-9a-f]{16}")
_WORKER = re.compile(r"[!-~]+")


def check_outline(outline: Outline, limit: int | None = None) -> None:
    """Raise InvalidInput, naming the field, for the first field that no change could have made so.

    `limit` is of the bytes of a request, a result or an error of an effect; None: there is none.
    """
    checked_id(outline.session_id)
    if not _LIFE.fullmatch(outline.life):
        raise InvalidInput("must be 16 hexadecimal digits in lower case", path="life")
    _check_number(outline.version, 1, LARGEST_COUNT, "version")
    _check_digest(outline.call, "call")
    _check_number(outline.last_seq, 0, LARGEST_COUNT, "last_seq")
    _check_state(outline.state, outline, "state")
    for name in ("created_at", "changed_at", "seen_at", "expires_at"):
        _check_time(getattr(outline, name), name)
    if outline.ttl is not None and not 0 < outline.ttl <= LATEST:
        raise InvalidInput(f"must be above 0 and up to {LATEST:,}", path="ttl")
    if outline.dimension is not None:
        _check_number(outline.dimension, 1, LARGEST_COUNT, "dimension")
    if outline.forked_from is not None:
        checked_id(outline.forked_from, "forked_from")
    before = 0
    for index, (seq, after) in enumerate(outline.jumps):
        _check_number(seq, before + 1, outline.last_seq, f"jumps[{index}][0]")
        _check_number(after, 0, seq - 1, f"jumps[{index}][1]")
        before = seq
    for index, snapshot in enumerate(outline.snapshots):
        _check_snapshot(snapshot, outline, f"snapshots[{index}]")
    for index, step in enumerate(outline.undo_steps):
        _check_undo_step(step, outline, f"undo_steps[{index}]")
    keys: set[str] = set()
    for index, effect in enumerate(outline.effects):
        _check_effect(effect, outline, limit, f"effects[{index}]")
        if effect.key in keys:
            raise InvalidInput("is there twice", path=f"effects[{index}].key")
        keys.add(effect.key)
    checked_where(outline.facts, "facts")


def _check_snapshot(snapshot: SnapshotPart, outline: Outline, path: str) -> None:
    checked_snapshot(snapshot.id, f"{path}.id")
    checked_label(snapshot.label, f"{path}.label")
    _check_number(snapshot.version, 1, outline.version, f"{path}.version")
    _check_time(snapshot.created_at, f"{path}.created_at")
    _check_state(snapshot.state, outline, f"{path}.state")


def _check_undo_step(step: UndoPart, outline: Outline, path: str) -> None:
    _check_number(step.version, 1, outline.version, f"{path}.version")
    if step.kind not in UNDOABLE:
        raise InvalidInput(f"must be one of {', '.join(sorted(UNDOABLE))}", path=f"{path}.kind")
    _check_number(step.moved_to, 0, outline.last_seq, f"{path}.moved_to")
    _check_number(step.hidden, -outline.last_seq, outline.last_seq, f"{path}.hidden")  # below 0: it showed more
    _check_state(step.before, outline, f"{path}.before")


def _check_effect(effect: EffectPart, outline: Outline, limit: int | None, path: str) -> None:
    checked_label(effect.key, f"{path}.key")
    if effect.status not in (STARTED, FINISHED, FAILED):
        raise InvalidInput(f"must be {STARTED}, {FINISHED} or {FAILED}", path=f"{path}.status")
    _check_number(effect.attempt, 1, MOST_ATTEMPTS, f"{path}.attempt")
    _check_number(effect.began, 1, outline.version, f"{path}.began")
    has_ended = effect.status != STARTED
    least, most = (effect.began + 1, outline.version) if has_ended else (0, 0)
    _check_number(effect.ended, least, most, f"{path}.ended")
    if (effect.ended_at is not None) is not has_ended:
        raise InvalidInput("must be there if, and only if, the effect has ended", path=f"{path}.ended_at")
    _check_number(effect.token, 0, LARGEST_COUNT, f"{path}.token")
    if not _WORKER.fullmatch(checked_label(effect.by, f"{path}.by") or ""):
        raise InvalidInput("is one word, as stores name themselves: letters, digits and punctuation", path=f"{path}.by")
    checked_label(effect.note, f"{path}.note")
    for name in ("at", "ended_at"):
        _check_time(getattr(effect, name), f"{path}.{name}")
    for name in ("request", "result", "error"):
        size = len(codec.encode_json(getattr(effect, name), f"{path}.{name}"))
        if limit is not None and size > limit:
            told = f"{size:,} bytes is over the limit of {limit:,} (option max_message_bytes)"
            raise InvalidInput(told, path=f"{path}.{name}")


def check_entry(entry: EntryPart, outline: Outline, limit: int) -> None:
    """Raise InvalidInput for an entry that `append` would not have taken; `limit` is of its bytes.

    Raises CorruptEntry for one whose bytes are not those that were written.
    """
    check_place(entry, outline)
    stored = codec.decode(
        outline.session_id, entry.kind, entry.seq, entry.created_at, entry.checksum, bytes(entry.body)
    )
    new = msgspec.structs.replace(stored, seq=None, created_at=None)
    dimension = codec.encode(new, "body", limit).dimension
    if dimension is not None and dimension != outline.dimension:
        raise InvalidInput(f"must have {outline.dimension} numbers, as its session says", path="body.embedding")


def check_place(entry: EntryPart, outline: Outline) -> None:
    """Raise InvalidInput for an entry whose seq, turn, time or kind is not possible, whatever its body is."""
    _check_number(entry.seq, 1, outline.last_seq, "seq")
    _check_number(entry.turn, 1, entry.seq, "turn")
    _check_time(entry.created_at, "created_at")
    if entry.kind not in (MESSAGE, TOOL_CALL, SUMMARY):
        codec.check_kind(entry.kind, "kind")


def check_change(change: ChangePart, outline: Outline) -> None:
    """Raise InvalidInput, naming the field, for a change that cannot have been made."""
    _check_number(change.version, 1, outline.version, "version")
    if change.kind not in CHANGES:
        raise InvalidInput(f"must be one of {', '.join(sorted(CHANGES))}", path="kind")
    _check_number(change.first_seq, 0, outline.last_seq, "first_seq")
    _check_number(change.count, 0, max(0, outline.last_seq - change.first_seq + 1), "count")
    _check_time(change.created_at, "created_at")
    _check_digest(change.call, "call")
    _check_state(change.state, outline, "state")
    for name in ("key", "content"):
        if getattr(change, name) is not None:
            _check_digest(getattr(change, name), name)
    if change.snapshot_id is not None:
        checked_snapshot(change.snapshot_id, "snapshot_id")
    checked_label(change.label)


def _check_state(state: State, outline: Outline, path: str) -> None:
    for name in ("head", "cleared", "floor", "messages"):
        _check_number(getattr(state, name), 0, outline.last_seq, f"{path}.{name}")
    before = 0
    for index, seq in enumerate(state.kept):
        _check_number(seq, before + 1, outline.last_seq, f"{path}.kept[{index}]")
        before = seq


def _check_number(number: int, least: int, most: int, path: str) -> None:
    if not least <= number <= most:
        raise InvalidInput(f"must be {least} to {most}, not {number}", path=path)


def _check_time(moment: float | None, path: str) -> None:
    if moment is not None and not 0 <= moment <= LATEST:
        raise InvalidInput(f"must be seconds since 1970, 0 to {LATEST:,}", path=path)


def _check_digest(digest: bytes, path: str) -> None:
    if len(digest) != DIGEST:
        raise InvalidInput(f"must have {DIGEST} bytes, not {len(digest)}", path=path)
