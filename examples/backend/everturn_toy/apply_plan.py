"""Applies changes: `plan_change` of everturn decides, from the answers of a LifeReader; `write` does what it planned.

A backend on a database does both within one transaction. Here the caller holds the lock, and `write` gets copies of the
life and of its log: if something raises half-way, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from everturn.backend import Action, Plan, State, StoredEffect, UndoStep, contains, path, stamped
from everturn.model import MESSAGE, SUMMARY, Snapshot
from everturn_toy.stored import Entry, Life, Log, seqs_of, shown

UNDO_STEPS = 10  # how many a session keeps


class LifeReader:
    """Answers the questions of a plan about one life. (It implements everturn.backend.Reader.)"""

    def __init__(self, life: Life, log: Log) -> None:
        self._life = life
        self._log = log

    def is_on_path(self, seq: int) -> bool:
        return contains(path(self._life.state.head, self._life.jumps), seq)

    def messages_after(self, seq: int) -> int:
        on_path = seqs_of(path(self._life.state.head, self._life.jumps))
        return sum(self._log[after].kind == MESSAGE for after in on_path if after > seq and after in self._log)

    def has_summary_after(self, seq: int) -> bool:
        on_path = [one for one in seqs_of(path(self._life.state.head, self._life.jumps)) if one > seq]
        is_lost = any(one not in self._log for one in on_path if one > self._life.state.floor)
        return is_lost or any(self._log[one].kind == SUMMARY for one in on_path if one in self._log)

    def shows_summaries(self) -> bool:
        _, summaries = shown(self._life, self._log, self._life.state)
        return bool(summaries)

    def snapshot(self, snapshot_id: str) -> State | None:
        _, state = self._life.snapshots.get(snapshot_id, (None, None))
        return state

    def state_after(self, version: int) -> State | None:
        state = self._life.state_at(version)
        return state if isinstance(state, State) else None

    def last_undo_step(self) -> UndoStep | None:
        return self._life.undo[-1] if self._life.undo else None

    def effect(self, key: str) -> StoredEffect | None:
        return self._life.effects.get(key)

    def facts(self) -> Mapping[str, str]:
        return self._life.facts


def write(life: Life, log: Log, action: Action, plan: Plan, now: float) -> None:
    """Write all that was planned, but for the version and the record of the change."""
    version, before = life.version + 1, life.state
    if plan.follows is not None:
        life.jumps.insert(0, (life.last_seq + 1, plan.follows))
    for drafts in (plan.carried, plan.drafts):  # each a turn
        first = life.last_seq + 1
        for draft in drafts:
            life.last_seq += 1
            life.bytes += len(draft.body)
            log[life.last_seq] = Entry(draft.kind, first, now, draft.checksum, draft.body)
    if plan.undoable:
        hidden = before.messages - plan.state.messages
        step = UndoStep(version, action.kind, plan.state.head, hidden, before)
        life.undo = [*life.undo, step][-UNDO_STEPS:]
    if plan.undone is not None:
        life.undo.pop()
    if plan.deleted is not None:
        del life.snapshots[plan.deleted]
    if plan.snapshot is not None:
        facts = (life.session_id, life.life, plan.snapshot.label, version, plan.state.messages, now)
        life.snapshots[plan.snapshot.snapshot_id] = Snapshot(plan.snapshot.snapshot_id, *facts), plan.state
    if plan.effect is not None:
        life.effects[plan.effect.key] = stamped(plan.effect, version, now)
    if plan.facts is not None:
        life.facts = dict(plan.facts)
    if plan.ttl is not None:
        life.ttl = plan.ttl.seconds
    life.dimension = life.dimension or plan.dimension
    life.state = plan.state
