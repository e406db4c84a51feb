"""Reads across sessions: pages of them, and text search. Reads within one session are in reads.py."""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import msgspec

from everturn.backend import Order
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.reads import SQL, Found, find_session
from everturn.backends.sqlite.sessions import path_to
from everturn.codec import EntryRow
from everturn.errors import InvalidInput
from everturn.model import SUMMARY, Page, SessionInfo
from everturn.rules import Range, contains


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Where the next page begins.

    By name: past `session_id`. By change: before (`changed_at`, `session_id`), down to the oldest; then, with `again`,
    those that changed since paging began, by name: one that moved to the front meanwhile is not missed.
    """

    order: Order
    session_id: str = ""
    changed_at: float = math.inf
    began: float = 0.0
    again: bool = False


def sessions(db: Connection, prefix: str, limit: int, page: str | None, order: Order, now: float) -> Page:
    """One page of live sessions."""
    token = _Token(order, began=now, changed_at=now + 1e9) if page is None else _read_token(page, order)
    bounds: dict[str, Any] = {"namespace": db.namespace, "prefix": prefix, "beyond": _beyond(prefix)}
    bounds |= {"past": token.session_id, "now": now, "limit": limit}
    if order == "recent" and not token.again:
        bounds |= {"before": token.changed_at}
        found = [SessionInfo(*row) for row in db.execute(SQL["sessions_by_change"], bounds)]
        if len(found) < limit:
            again = _write_token(_Token(order, began=token.began, again=True, changed_at=0.0))
            return Page(tuple(found), None if page is None else again)
        last = found[-1]
        return Page(tuple(found), _write_token(_Token(order, last.session_id, last.changed_at, token.began)))
    bounds |= {"since": token.began if token.again else 0.0}
    found = [SessionInfo(*row) for row in db.execute(SQL["sessions_by_name"], bounds)]
    if len(found) < limit:
        return Page(tuple(found), None)
    return Page(tuple(found), _write_token(_Token(order, found[-1].session_id, 0.0, token.began, token.again)))


def _write_token(token: _Token) -> str:
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read_token(page: str, order: Order) -> _Token:
    try:
        token = msgspec.json.decode(urlsafe_b64decode(page.encode()), type=_Token)
    except (ValueError, msgspec.MsgspecError):
        token = None
    if token is None or token.order != order:
        raise InvalidInput("is not the `next` of a page in this order", path="page")
    return token


def _beyond(prefix: str) -> str | None:
    """The least string that is greater than all that begin with `prefix`, in byte order; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if 0xD800 <= point <= 0xDFFF else point)
        prefix = prefix[:-1]
    return None


def find(db: Connection, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], now: float) -> None:
    """Hand visible entries whose body may contain the text to `take`, newest first, until it says False."""
    needle = msgspec.json.encode(text)[1:-1].decode()
    pattern = "%" + needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    wanted: dict[str, Any] = {"namespace": db.namespace, "pattern": pattern, "now": now}
    if session_id is not None:
        rows = db.execute(SQL["find_in_one"], wanted | {"session_id": session_id})
    else:
        rows = db.execute(SQL["find_in_all"], wanted)
    looking_at: _Visibility | None = None
    for found_in, *row in rows:
        if looking_at is None or looking_at.session_id != found_in:
            looking_at = _Visibility(db, found_in, now)
        if looking_at.shows(row[0], row[4]) and not take(found_in, tuple(row)):
            return


class _Visibility:
    """Which entries of one session are visible now."""

    def __init__(self, db: Connection, session_id: str, now: float) -> None:
        self.session_id = session_id
        self._found: Found | None = find_session(db, session_id, now)
        self._path: list[Range] = path_to(db, self._found.no, self._found.state.head) if self._found else []

    def shows(self, seq: int, kind: str) -> bool:
        if self._found is None or not contains(self._path, seq):
            return False
        state = self._found.state
        return seq > state.floor or seq in state.kept or (kind == SUMMARY and seq > state.cleared)
