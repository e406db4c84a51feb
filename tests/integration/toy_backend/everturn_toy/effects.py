"""What each change does to a life and its log. Both are copies: what is refused half-way leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everturn.backend import (
    Append,
    Clear,
    DeleteSnapshot,
    Rollback,
    SetFloor,
    SetTTL,
    State,
    Status,
    TakeSnapshot,
    Undo,
    contains,
    path,
)
from everturn.model import MESSAGE, Snapshot
from everturn_toy.lives import Entry, Life, Log, UndoStep, shown

UNDO_STEPS = 10
set_ = msgspec.structs.replace


def apply(effect: Any, life: Life, log: Log, now: float) -> Status:
    """Change the life and its log; or say why not, whatever they are then."""
    before = life.state
    status = _EFFECTS[type(effect)](effect, life, log, now)
    if status is Status.APPLIED and effect.kind in ("replace", "trim", "clear", "rollback"):
        hidden = before.messages - life.state.messages
        step = UndoStep(life.version + 1, effect.kind, life.state.head, hidden, before)
        life.undo = [*life.undo, step][-UNDO_STEPS:]
    return status


def _append(effect: Append, life: Life, log: Log, now: float) -> Status:
    if None not in (effect.dimension, life.dimension) and effect.dimension != life.dimension:
        return Status.DIMENSION
    state = life.state
    if effect.after is not None and effect.after != state.head:
        after = effect.after
        if life.version == 0 or not (after == 0 or contains(path(state.head, life.jumps), after)):
            return Status.NOT_ON_PATH
        kept = tuple(seq for seq in state.kept if seq <= after)
        state = State(after, min(after, state.cleared), min(after, state.floor), kept)
        must, _ = shown(life, log, state)
        state = set_(state, messages=sum(log[seq].kind == MESSAGE for seq in must if seq in log))
    elif not effect.drafts:
        return Status.UNCHANGED
    if effect.drafts:
        first = life.last_seq + 1
        if state.head != life.last_seq:
            life.jumps.insert(0, (first, state.head))
        for draft in effect.drafts:
            life.last_seq += 1
            life.bytes += len(draft.body)
            log[life.last_seq] = Entry(draft.kind, first, now, draft.checksum, draft.body)
        state = set_(state, head=life.last_seq, messages=state.messages + effect.messages)
    life.dimension = life.dimension or effect.dimension
    life.state = state
    return Status.APPLIED


def _set_floor(effect: SetFloor, life: Life, log: Log, now: float) -> Status:
    if life.version == 0 or effect.floor is None:
        return Status.UNCHANGED
    state, seen = life.state, effect.seen
    if (life.life, state.cleared, state.floor, state.kept) != (effect.life, seen.cleared, seen.floor, seen.kept):
        return Status.MOVED
    if state.head != seen.head and not contains(path(state.head, life.jumps), seen.head):
        return Status.MOVED
    life.state = set_(state, floor=effect.floor, kept=effect.kept, messages=state.messages - effect.hidden)
    return Status.APPLIED


def _clear(effect: Clear, life: Life, log: Log, now: float) -> Status:
    if not any(shown(life, log, life.state)):
        return Status.UNCHANGED
    head = life.state.head
    life.state = State(head, cleared=head, floor=head)
    return Status.APPLIED


def _take_snapshot(effect: TakeSnapshot, life: Life, log: Log, now: float) -> Status:
    facts = (life.session_id, life.life, effect.label, life.version + 1, life.state.messages, now)
    life.snapshots[effect.snapshot_id] = Snapshot(effect.snapshot_id, *facts), life.state
    return Status.APPLIED


def _delete_snapshot(effect: DeleteSnapshot, life: Life, log: Log, now: float) -> Status:
    return Status.APPLIED if life.snapshots.pop(effect.snapshot_id, None) else Status.NO_SNAPSHOT


def _rollback(effect: Rollback, life: Life, log: Log, now: float) -> Status:
    if effect.snapshot_id not in life.snapshots:
        return Status.NO_SNAPSHOT
    before, life.state = life.state, life.snapshots[effect.snapshot_id][1]
    return Status.UNCHANGED if life.state == before else Status.APPLIED


def _undo(effect: Undo, life: Life, log: Log, now: float) -> Status:
    if not life.undo:
        return Status.NOTHING_TO_UNDO
    step, state = life.undo.pop(), life.state
    if step.kind in ("trim", "clear"):  # what was hidden is shown again; what came later is not touched
        life.state = set_(step.before, head=state.head, messages=state.messages + step.hidden)
    elif state.head != step.moved_to and not effect.drop_turns:
        return Status.FOLLOWED
    else:
        life.state = step.before
    return Status.APPLIED


def _set_ttl(effect: SetTTL, life: Life, log: Log, now: float) -> Status:
    life.ttl = effect.seconds
    return Status.APPLIED


_EFFECTS: dict[type, Callable[[Any, Life, Log, float], Status]] = {
    Append: _append,
    SetFloor: _set_floor,
    Clear: _clear,
    TakeSnapshot: _take_snapshot,
    DeleteSnapshot: _delete_snapshot,
    Rollback: _rollback,
    Undo: _undo,
    SetTTL: _set_ttl,
}
