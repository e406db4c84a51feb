"""Effects in the table `effects`, read and written in the transaction of a change. core/effects.py has the values.

The table `effect_keys` has their keys once more, linked: a link names a key and the next one, and shows so that nothing
between the two was begun. An effect without a row is new only if a link says so (docs/decisions/121).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from everturn.backend import (
    BeginEffect,
    ChangeOutcome,
    ChangeRequest,
    EffectsReading,
    EndEffect,
    LeaseRow,
    StoredEffect,
    is_held,
)
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.leases import lease_of
from everturn.backends.sqlite.row_checksums import all_unsealed, sealed, seconds, unsealed
from everturn.backends.sqlite.session_row import SessionRow, all_of, load

SQL = statements.load("effects.sql")


def effect_of(db: Connection, session: SessionRow, key: str) -> StoredEffect | None:
    """Load an effect of a session; None if it was never begun. Raises ValueError if the row was damaged, or is lost."""
    found = db.row(SQL["load_effect"], (session.number, key))
    if found is None:
        if session.effects:
            _spanning_link(db, session.number, key)
        return None
    columns = unsealed(found, "an effect of session number")
    if tuple(columns[:2]) != (session.number, key):
        raise ValueError(f"a search for the effect {key!a} leads to {columns[1]!a}")
    return _from_columns(columns)


def effects_of(db: Connection, session: SessionRow, bad: list[str] | None = None) -> list[StoredEffect]:
    """Load all effects of a session, in the order in which they were begun. `bad`: as in session_row.snapshots."""
    rows = all_unsealed(db.execute(SQL["list_effects"], (session.number,)), "an effect of session number", bad)
    found = [_from_columns(columns) for columns in rows if columns[0] == session.number]
    return all_of(found, session.effects, "effects", bad)


def read(db: Connection, session_id: str, now: float) -> EffectsReading:
    """List the effects of a session (Backend.effects)."""
    session = load(db, session_id, now)
    if session is None:
        return EffectsReading()
    lease = lease_of(db, session_id)
    rows = tuple(_with_lease(row, lease, session.life, now) for row in effects_of(db, session))
    return EffectsReading(session.life, session.version, rows)


def with_row(
    db: Connection, session: SessionRow | None, request: ChangeRequest, outcome: ChangeOutcome, now: float
) -> ChangeOutcome:
    """Add the row of the effect to the answer to a request that was to begin or end it."""
    action = request.action
    if session is None or not isinstance(action, BeginEffect | EndEffect):
        return outcome
    row = effect_of(db, session, action.key)
    if row is None:
        return outcome
    held = _with_lease(row, lease_of(db, request.session_id), session.life, now)
    return msgspec.structs.replace(outcome, effect=held)


def begin(db: Connection, session: SessionRow, row: StoredEffect) -> None:
    """Write an effect that a session has not: its row, and its key between those before and after it."""
    before, after = _spanning_link(db, session.number, row.key) if session.effects else (row.key, row.key)
    if session.effects:
        _store_link(db, session.number, before, row.key)
    _store_link(db, session.number, row.key, after)
    store(db, session.number, row)


def store(db: Connection, number: int, *rows: StoredEffect) -> None:
    """Write effects under a session's number, in place of those with the same keys."""
    for row in rows:
        texts = (None if body is None else bytes(body).decode() for body in (row.request, row.result, row.error))
        columns = (number, row.key, row.status, row.attempt, row.began, row.ended, row.token, row.by)
        db.execute(
            SQL["store_effect"],
            sealed(*columns, seconds(row.at), row.ended_at and seconds(row.ended_at), *texts, row.note),
        )


def replace(db: Connection, number: int, rows: Sequence[StoredEffect]) -> None:
    """Write effects under a session's number, in place of all that are there."""
    db.execute(SQL["delete_effects"], (number,))
    db.execute(SQL["delete_links"], (number,))
    store(db, number, *rows)
    for key, following in _linked(row.key for row in rows):
        _store_link(db, number, key, following)


def wrong_links(db: Connection, session: SessionRow, rows: Iterable[StoredEffect]) -> Iterator[str]:
    """Find links that are not those of these effects, all that a session has."""
    bad: list[str] = []
    stored = all_unsealed(db.execute(SQL["list_links"], (session.number,)), "a link of effects of session number", bad)
    found = {(key, following) for _, key, following in stored}
    yield from bad
    for key, following in sorted(found ^ set(_linked(row.key for row in rows))):
        called = "has a link that it should not have" if (key, following) in found else "has lost a link"
        yield f"it {called}: of its effect {key!a} to {following!a}"


def _spanning_link(db: Connection, number: int, key: str) -> tuple[str, str]:
    """Find the two keys, one after the other, that a key which was never begun is between.

    Raises ValueError if no link shows that. It does not matter why: whatever a search leads to, a link that matches its
    checksum, is of this session and spans the key was written, and would have been replaced if the key had been begun.
    """
    row = db.row(SQL["load_link"], (number, key)) or db.row(SQL["load_last_link"], (number,))
    if row is not None:
        of, before, after = unsealed(row, "a link of effects of session number")
        # The last key is linked to the first.
        is_between = before < key < after if before < after else key > before or key < after
        if of == number and is_between:
            return before, after
    raise ValueError(f"the effect {key!a} is not found, and nothing shows that it was never begun")


def _linked(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pair keys with the next in their order, the last with the first."""
    ordered = sorted(keys)
    return zip(ordered, [*ordered[1:], *ordered[:1]], strict=True)


def _store_link(db: Connection, number: int, key: str, following: str) -> None:
    db.execute(SQL["store_link"], sealed(number, key, following))


def _from_columns(columns: Sequence[Any]) -> StoredEffect:
    _, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note = columns
    request, result, error = (None if text is None else text.encode() for text in (request, result, error))
    return StoredEffect(key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note)


def _with_lease(row: StoredEffect, lease: LeaseRow | None, life: str, now: float) -> StoredEffect:
    held = row.token > 0 and lease is not None and lease.token == row.token and is_held(lease, life, now)
    return msgspec.structs.replace(row, held=held) if held else row
