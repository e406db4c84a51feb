"""Reads across sessions: pages of sessions, and text search. Reads of one session are in reads.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from everturn.backend import Order, Where, has_facts
from everturn.backends._shared import paging
from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.lost_entries import first_missing
from everturn.backends.sqlite.packed_rows import MOST_LINES, earliest_start, unpacked
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.backends.sqlite.session_row import (
    SessionRow,
    from_columns,
    load,
    refuse_other_row,
    span,
)
from everturn.backends.sqlite.visible_ranges import ranges_as_json, refuse_misplaced_summaries
from everturn.core.codec import EntryRow, checksum, damaged, missing
from everturn.model import SUMMARY, Page

SQL = statements.load("listing.sql")
MANY = 100  # sessions with a fact are counted up to here, to find the rarest fact
_BY_NAME = ("namespace", "prefix", "beyond", "past")


def sessions(
    db: Connection, prefix: str, limit: int, page: str | None, order: Order, now: float, where: Where | None = None
) -> Page:
    """List one page of live sessions. Raises ValueError if the index of names, or that of facts, is damaged."""
    token = paging.token_of(page, order)
    begins = token.by_change and token.is_first
    if begins:
        token = paging.begun(token, now)
    bounds: dict[str, Any] = {"namespace": db.namespace, "prefix": prefix, "beyond": paging.beyond(prefix)}
    bounds |= {"past": token.session_id, "bound": token.bound}
    if where:
        found = _by_fact(db, bounds, where, limit, now, by_change=token.by_change)
    elif token.by_change:
        found = _by_change(db, bounds, limit, now, begins=begins)
    else:
        found = _by_name(db, bounds, limit, now)
    return paging.page_of([msgspec.structs.astuple(session.info) for session in found], token, limit)


def _by_name(db: Connection, bounds: Mapping[str, Any], limit: int, now: float) -> list[SessionRow]:
    found: list[SessionRow] = []
    names: list[str] = []
    within = {key: bounds[key] for key in _BY_NAME}
    for name, *columns in db.execute(SQL["sessions_by_name"], within):
        names.append(name)
        refuse_other_row(tuple(columns[1:4]), (db.namespace, name, 0))
        session = from_columns(columns)
        if not session.is_over(now) and session.changed_at >= bounds["bound"]:
            found.append(session)
            if len(found) == limit:
                break
    _refuse_lost_names(db, names, within, names[-1] if len(found) == limit else None)
    return found


def _by_change(db: Connection, bounds: Mapping[str, Any], limit: int, now: float, *, begins: bool) -> list[SessionRow]:
    if begins:
        # A row that says that it was changed later than now would be on no page: it must be as it was written.
        for (name,) in db.execute(SQL["sessions_changed_later"], bounds):
            load(db, name, now)
    candidates = (load(db, name, now) for (name,) in db.execute(SQL["sessions_by_change"], bounds))
    found = list(islice(filter(None, candidates), limit))
    within = {key: bounds[key] for key in _BY_NAME if key != "past"}
    _refuse_lost_names(
        db, [name for (name,) in db.execute(SQL["names_in_order"], within)], within | {"past": None}, None
    )
    return found


def _by_fact(
    db: Connection, bounds: Mapping[str, Any], where: Where, limit: int, now: float, *, by_change: bool
) -> list[SessionRow]:
    """Read the sessions that have the rarest of the facts, by the index of facts, and leave out those without the
    others."""
    name, value = min(where.items(), key=lambda fact: db.value(SQL["count_with_fact"], (db.namespace, *fact, MANY)))
    within = {key: bounds[key] for key in _BY_NAME} | {"name": name, "value": value}
    if by_change:
        within["past"] = ""
    found: list[SessionRow] = []
    names: list[str] = []
    for session_id, *columns in db.execute(SQL["sessions_by_fact"], within):
        names.append(session_id)
        if (
            tuple(columns[1:4]) != (db.namespace, session_id, 0)
            or (session := from_columns(columns)).facts.get(name) != value
        ):
            raise ValueError(f"the index of facts leads to {tuple(columns[1:4])!a}, which has not the fact {name!a}")
        is_listed = (
            (session.changed_at, session_id) < (bounds["bound"], bounds["past"])
            if by_change
            else (session.changed_at >= bounds["bound"])
        )
        if is_listed and not session.is_over(now) and has_facts(session.facts, where):
            found.append(session)
            if len(found) == limit and not by_change:
                break
    last = names[-1] if len(found) >= limit and not by_change else None
    if names != [name for (name,) in db.execute(SQL["names_with_fact_again"], {**within, "last": last})]:
        raise ValueError("the two indexes of facts differ: one of them is damaged")
    if db.row(SQL["lacks_ends_of_facts"]) is not None:
        raise ValueError("an end of the indexes of facts is not found: a part of them may be out of reach")
    if by_change:
        found.sort(key=lambda session: (session.changed_at, session.session_id), reverse=True)
    return found[:limit]


def _refuse_lost_names(db: Connection, names: list[str], within: Mapping[str, Any], last: str | None) -> None:
    """Raise ValueError unless both indexes of names have these, within bounds and up to `last`."""
    again = [name for (name,) in db.execute(SQL["names_again"], {**within, "last": last})]
    if again != names:
        raise ValueError("the two indexes of names differ: one of them is damaged")


def find(db: Connection, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], now: float) -> None:
    """Hand visible entries whose body may contain the text to `take`, newest first, until it returns False."""
    pattern = paging.pattern_for(text)
    if session_id is not None:
        _find_in_one(db, pattern, _Visibility(db, session_id, now), take)
        return
    number, looking_at = 0, None
    for row_id, *row in db.execute(SQL["find_in_all"], {"pattern": pattern}):
        if row_id >> 32 != number:
            number = row_id >> 32
            looking_at = _of_number(db, number, now)
        for entry in reversed([*unpacked(row)]):
            is_shown = looking_at is not None and looking_at.shows(entry[0], entry[4])
            if looking_at is not None and is_shown and not take(looking_at.session_id, entry):
                _refuse_incomplete_log(db, number, now)
                return
    _refuse_incomplete_log(db, 1, now)


def _of_number(db: Connection, number: int, now: float) -> _Visibility | None:
    """Find the session of this number. None: it has ended, or is of another namespace."""
    row = db.row(SQL["load_by_number"], (number,))
    if row is None:
        raise ValueError(f"there are entries of session number {number}, and no such session")
    _, namespace, name, ended, *_ = row
    if not ended:
        from_columns(row)
    if namespace != db.namespace:
        return None
    visible = _Visibility(
        db, name, now
    )  # raises if the index of names leads to this row, and the row says that it ended
    return None if ended else visible


def _refuse_incomplete_log(db: Connection, number: int, now: float) -> None:
    """Raise ValueError unless everything that sessions from this number on should have is in the log, in order.

    Otherwise a search of the whole log may have missed entries whose page lies in another place.
    """
    sizes: dict[int, int] = {}
    above = 2**63
    for row_id, size in db.execute(SQL["sizes_from"], (number << 32,)):
        if row_id >= above:
            raise ValueError("the log is not in order")
        above = row_id
        sizes[row_id >> 32] = sizes.get(row_id >> 32, 0) + size
    for found, size in db.execute(SQL["sessions_from"], (number,)):
        if sizes.get(found, 0) != size:
            raise ValueError(
                f"the log of session number {found} has {sizes.get(found, 0)} bytes, and should have {size}"
            )
    if not page_checksums.are_kept(db):
        for found in sizes:
            visible = _of_number(db, found, now)
            if visible is not None:
                _refuse_damaged_bodies(db, visible, *span(found))


def _refuse_damaged_bodies(db: Connection, visible: _Visibility, first: int, last: int) -> None:
    """Raise CorruptEntry if a visible entry is damaged.

    Where pages have no checksums, nothing else shows that damage kept a text from being found.
    """
    for row in db.execute(SQL["rows_between"], (first, last)):
        seq, _, check, body, kind, _, count, *_ = row
        if checksum(kind, body) != check:
            for number in range(min(max(count, 1), MOST_LINES)):
                if visible.shows((seq & 0xFFFFFFFF) + number, kind):
                    raise damaged(visible.session_id, (seq & 0xFFFFFFFF) + number)


def _find_in_one(db: Connection, pattern: str, visible: _Visibility, take: Callable[[str, EntryRow], bool]) -> None:
    """Search along the path, and not in branches that were left."""
    for base, first, last in visible.ranges():
        bounds = {"first": base + earliest_start(first), "last": base + last, "pattern": pattern, "base": base}
        for row in db.execute(SQL["find_in_range"], bounds):
            for entry in reversed([*unpacked(row)]):
                is_here = first <= entry[0] <= last and visible.shows(entry[0], entry[4])
                if is_here and not take(visible.session_id, entry):
                    return
        visible.refuse_lost(first, last)
        if not page_checksums.are_kept(db):
            _refuse_damaged_bodies(db, visible, base + earliest_start(first), base + last)
    visible.refuse_lost_below_floor()


class _Visibility:
    """Tells which entries of one session are visible now."""

    def __init__(self, db: Connection, session_id: str, now: float) -> None:
        self.session_id = session_id
        self._db = db
        self._found = load(db, session_id, now)
        self._walk = PathWalk(db, self._found, self._found.state.head) if self._found else None

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield the ranges of the path above `cleared`, newest first, each with the base of its rows' ids."""
        if self._found is None or self._walk is None:
            return
        cleared = self._found.state.cleared
        for first, last in self._walk.back():
            if last <= cleared:
                return
            yield self._found.base, max(first, cleared + 1), last

    def refuse_lost(self, first: int, last: int) -> None:
        """Raise CorruptEntry if a part of the log, read backwards, is not in order, or an entry above the floor is not
        stored."""
        if self._found is None:
            return
        base, shown = self._found.base, max(first, self._found.state.floor + 1)
        above, stored = 2**63, 0
        for row_id, count in self._db.execute(SQL["sizes_between"], (base + earliest_start(first), base + last)):
            if row_id >= above:
                raise missing(self.session_id, first)
            above = row_id
            stored += max(0, min(row_id - base + count - 1, last) - max(row_id - base, shown) + 1)
        if stored != max(0, last - shown + 1):
            raise missing(self.session_id, shown)

    def refuse_lost_below_floor(self) -> None:
        """Raise if one of the entries that a trim left may be missing: messages that it kept, and summaries."""
        if self._found is None or self._walk is None or not self._found.state.floor:
            return
        base, state = self._found.base, self._found.state
        refuse_misplaced_summaries(self._db, base + state.cleared + 1, base + state.floor)
        kept = [(seq, seq) for seq in state.kept if seq > state.cleared]
        seq = first_missing(self._db, base, ranges_as_json(kept, self._walk.walked), None)
        if seq:
            raise missing(self.session_id, seq)

    def shows(self, seq: int, kind: str) -> bool:
        if self._found is None or self._walk is None:
            return False
        state = self._found.state
        is_shown = state.floor < seq <= state.head or seq in state.kept or (kind == SUMMARY and seq > state.cleared)
        return is_shown and seq in self._walk
