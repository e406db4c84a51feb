"""Reads across sessions: pages of sessions, and text search. Reads of one session are in reads.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from everturn.backend import Order
from everturn.backends._shared import paging
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.lost_entries import first_missing
from everturn.backends.sqlite.packed_rows import earliest_start, unpacked
from everturn.backends.sqlite.reads import LiveSession, find_session
from everturn.backends.sqlite.session_row import PathWalk
from everturn.backends.sqlite.visible_ranges import ranges_as_json
from everturn.core.codec import EntryRow, missing
from everturn.model import SUMMARY, Page

SQL = statements.load("listing.sql")


def sessions(db: Connection, prefix: str, limit: int, page: str | None, order: Order, now: float) -> Page:
    """List one page of live sessions. Raises ValueError if the index of names is damaged."""
    token = paging.token_of(page, order)
    if token.by_change and token.is_first:
        token = paging.begun(token, now)
    bounds: dict[str, Any] = {"namespace": db.namespace, "prefix": prefix, "beyond": paging.beyond(prefix)}
    bounds |= {"past": token.session_id, "bound": token.bound, "now": now, "limit": limit}
    statement = SQL["sessions_by_change" if token.by_change else "sessions_by_name"]
    rows = db.rows(statement, bounds)
    if None in [row[0] for row in rows]:
        raise ValueError("the index of names leads to rows of other names")
    return paging.page_of(rows, token, limit)


def find(db: Connection, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], now: float) -> None:
    """Hand visible entries whose body may contain the text to `take`, newest first, until it returns False."""
    pattern = paging.pattern_for(text)
    if session_id is not None:
        _find_in_one(db, pattern, _Visibility(db, session_id, now), take)
        return
    looking_at: _Visibility | None = None
    for found_in, *row in db.execute(SQL["find_in_all"], {"namespace": db.namespace, "pattern": pattern, "now": now}):
        if looking_at is None or looking_at.session_id != found_in:
            looking_at = _Visibility(db, found_in, now)
        for entry in reversed([*unpacked(row)]):
            if looking_at.shows(entry[0], entry[4]) and not take(found_in, entry):
                return


def _find_in_one(db: Connection, pattern: str, visible: _Visibility, take: Callable[[str, EntryRow], bool]) -> None:
    """Search along the path, and not in branches that were left."""
    for base, first, last in visible.ranges():
        bounds = {"first": base + earliest_start(first), "last": base + last, "pattern": pattern}
        for row in db.execute(SQL["find_in_range"], bounds):
            for entry in reversed([*unpacked(row)]):
                is_here = first <= entry[0] <= last and visible.shows(entry[0], entry[4])
                if is_here and not take(visible.session_id, entry):
                    return
        if seq := visible.first_missing(first, last):
            raise missing(visible.session_id, seq)


class _Visibility:
    """Tells which entries of one session are visible now."""

    def __init__(self, db: Connection, session_id: str, now: float) -> None:
        self.session_id = session_id
        self._db = db
        self._found: LiveSession | None = find_session(db, session_id, now)
        self._walk = PathWalk(db, self._found.no, self._found.state.head) if self._found else None

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield the ranges of the path above `cleared`, newest first, each with the base of its rows' ids."""
        if self._found is None or self._walk is None:
            return
        cleared = self._found.state.cleared
        for first, last in self._walk.back():
            if last <= cleared:
                return
            yield self._found.base, max(first, cleared + 1), last

    def first_missing(self, first: int, last: int) -> int:
        """Find the first entry of a range that must be stored and is not; 0 if all are."""
        if self._found is None or self._walk is None or last <= self._found.state.floor:
            return 0
        wanted = [(max(first, self._found.state.floor + 1), last)]
        return first_missing(self._db, self._found.base, ranges_as_json(wanted, self._walk.walked), None)

    def shows(self, seq: int, kind: str) -> bool:
        if self._found is None or self._walk is None:
            return False
        state = self._found.state
        is_shown = state.floor < seq <= state.head or seq in state.kept or (kind == SUMMARY and seq > state.cleared)
        return is_shown and seq in self._walk
