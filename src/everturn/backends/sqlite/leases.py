"""Leases in the table `leases`: taken, renewed and released in one transaction each. core/leases.py has the rules."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.backend import (
    ChangeRequest,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    LeaseRow,
    change_lease,
    is_fenced_off,
    reading_of,
)
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.row_checksums import sealed, seconds, unsealed
from everturn.backends.sqlite.session_row import SessionRow, load

SQL = statements.load("leases.sql")
_LOAD = SQL["load_lease"]
LAST = ("\U0010ffff" * 4, "")  # end of the table, of no session; the other is ("", "")


def apply_lease(db: Connection, request: LeaseRequest, now: float) -> LeaseOutcome:
    """Take, renew or release a lease (Backend.lease). The session's row is left alone."""
    session = load(db, request.session_id, now)
    row = lease_of(db, request.session_id)
    life = session.life if session else ""
    outcome, changed = change_lease(request, row, life, now, db.lives_from)
    if changed is not None:
        _store(db, request.session_id, changed)
    return outcome


def held_lease(db: Connection, session_id: str, now: float) -> LeaseReading | None:
    """Look at the lease of a session that is in force (Backend.held_lease)."""
    session = load(db, session_id, now)
    return reading_of(lease_of(db, session_id), session.life if session else "", now)


def is_refused(db: Connection, session: SessionRow | None, request: ChangeRequest, now: float) -> bool:
    """Whether the lease that a change names is not in force."""
    if request.lease is None:
        return False
    row = lease_of(db, request.session_id)
    return is_fenced_off(request.lease, row, session.life if session else "", now)


def bind(db: Connection, session_id: str, life: str) -> None:
    """Let a lease that was taken before the life began end with it."""
    row = lease_of(db, session_id)
    if row is not None and not row.life:
        _store(db, session_id, LeaseRow(row.token, row.holder, row.until, life))


def lease_of(db: Connection, session_id: str) -> LeaseRow | None:
    """Load the latest lease of a session; None if it never had one. Raises ValueError if the row was damaged."""
    found = db.row(_LOAD, (db.namespace, session_id))
    if found is None:
        _refuse_misplaced(db, (db.namespace, session_id))
        return None
    namespace, name, life, token, holder, until = unsealed(found, "the lease of namespace")
    if (namespace, name) != (db.namespace, session_id):
        raise ValueError(f"a search for its lease leads to {name!a}")
    return LeaseRow(token, holder, until, life)


def _refuse_misplaced(db: Connection, wanted: tuple[str, str]) -> None:
    """Raise ValueError if a lease may not have been found because rows are not in order: its neighbours must be."""
    for which, is_before in (("lease_before", True), ("lease_after", False)):
        found = db.row(SQL[which], wanted)
        if found is None and wanted > LAST:
            continue
        is_in_place = found is not None and (_in_order(found) < _in_order(wanted)) is is_before
        if not is_in_place or db.row(_LOAD, found) is None:
            raise ValueError("its lease may be stored: the table of leases is damaged where it would be")


def _in_order(name: Sequence[str]) -> list[bytes]:
    return [part.encode() for part in name]


def forget(db: Connection, session_id: str) -> None:
    """Delete the lease of a session that is erased."""
    db.execute(SQL["delete_lease"], (db.namespace, session_id))


def forget_idle(db: Connection, now: float, limit: int) -> bool:
    """Delete some leases that are over, of names that have no session. True: there may be more."""
    db.execute(SQL["delete_idle_leases"], (now, limit))
    return db.changes() >= limit


def _store(db: Connection, session_id: str, row: LeaseRow) -> None:
    columns = (db.namespace, session_id, row.life, row.token, row.holder, seconds(row.until))
    db.execute(SQL["store_lease"], sealed(*columns))
