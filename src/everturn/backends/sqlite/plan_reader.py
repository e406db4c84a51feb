"""The Reader of core/plan_change.py over the tables: it answers in the transaction of the change."""

from __future__ import annotations

from everturn.backend import StoredEffect
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.effects import effect_of
from everturn.backends.sqlite.packed_rows import earliest_start
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.backends.sqlite.session_row import SessionRow, snapshot_state, undo_steps, version_state
from everturn.backends.sqlite.visible_ranges import refuse_misplaced_summaries
from everturn.core.paths import State, clip
from everturn.core.plan_change import UndoStep

SQL = statements.load("plan_reader.sql")


class PlanReader:
    """Answers a plan's questions about the log of one session."""

    def __init__(self, db: Connection, session: SessionRow) -> None:
        self._db = db
        self._session = session

    def is_on_path(self, seq: int) -> bool:
        return seq in PathWalk(self._db, self._session, self._session.state.head)

    def messages_after(self, seq: int) -> int:
        return self._count("count_messages", seq + 1)[0]

    def _count(self, what: str, low: int) -> tuple[int, int]:
        """Count entries on the path from a seq on, and the seqs there."""
        base, head = self._session.base, self._session.state.head
        ranges = PathWalk(self._db, self._session, head).down_to(low)
        count = seqs = 0
        for first, last in clip(ranges, low, head):
            start = base + earliest_start(first, ranges)
            count += self._db.value(SQL[what], (start, base + first, base + last))
            seqs += last - first + 1
        return count, seqs

    def has_summary_after(self, seq: int) -> bool:
        if self._has_summary(seq + 1, self._session.state.head):
            return True
        there, seqs = self._count("count_entries", max(seq, self._session.state.floor) + 1)
        return there < seqs

    def shows_summaries(self) -> bool:
        return self._has_summary(self._session.state.cleared + 1, self._session.state.floor)

    def _has_summary(self, first: int, last: int) -> bool:
        base, head = self._session.base, self._session.state.head
        walk = PathWalk(self._db, self._session, head)
        refuse_misplaced_summaries(self._db, base + first, base + last)
        return any(seq in walk for (seq,) in self._db.execute(SQL["summaries_between"], (base + first, base + last)))

    def snapshot(self, snapshot_id: str) -> State | None:
        return snapshot_state(self._db, self._session, snapshot_id)

    def state_after(self, version: int) -> State | None:
        return version_state(self._db, self._session, version)

    def last_undo_step(self) -> UndoStep | None:
        steps = undo_steps(self._db, self._session)
        return steps[-1] if steps else None

    def effect(self, key: str) -> StoredEffect | None:
        return effect_of(self._db, self._session, key)

    def facts(self) -> dict[str, str]:
        return self._session.facts
