"""Pages of sessions, and what a text looks like inside a body. Pure; the statements are in schema/001/6-listing.sql."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from everturn.backend import Order
from everturn.backends.postgres.ports import Rows
from everturn.errors import InvalidInput
from everturn.model import Page, SessionInfo


class Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Where the next page begins.

    By name: past `session_id`. By change: before (`changed_at`, `session_id`), down to the oldest; then, with `again`,
    those that changed since paging began, by name: one that moved to the front meanwhile is not missed.
    """

    order: Order
    session_id: str = ""
    changed_at: float = 1e300
    began: float = 0.0
    again: bool = False

    @property
    def is_first(self) -> bool:
        return self.changed_at == 1e300

    @property
    def by_change(self) -> bool:
        return self.order == "recent" and not self.again


def token_of(page: str | None, order: Order) -> Token:
    """The token in a page's `next`. Raises InvalidInput."""
    if page is None:
        return Token(order)
    try:
        token = msgspec.json.decode(urlsafe_b64decode(page.encode()), type=Token)
    except (ValueError, msgspec.MsgspecError):
        token = None
    if token is None or token.order != order:
        raise InvalidInput("is not the `next` of a page in this order", path="page")
    return token


def _next(token: Token) -> str:
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def parameters(token: Token, prefix: str, limit: int) -> tuple[Any, ...]:
    """Of sessions_by_name_v1 or sessions_by_change_v1, behind the namespace and before the time."""
    if token.by_change:
        return prefix, beyond(prefix), token.session_id, token.changed_at, limit
    return prefix, beyond(prefix), token.session_id, token.began if token.again else 0.0, limit


def page_of(rows: Rows, token: Token, limit: int) -> Page:
    """The page that these rows make."""
    found = tuple(SessionInfo(*row) for row in rows)
    if not token.by_change:
        if len(found) < limit:
            return Page(found, None)
        return Page(found, _next(msgspec.structs.replace(token, session_id=found[-1].session_id)))
    if len(found) < limit:
        return Page(found, None if token.is_first else _next(Token(token.order, "", 0.0, token.began, again=True)))
    return Page(found, _next(Token(token.order, found[-1].session_id, found[-1].changed_at, token.began)))


def beyond(prefix: str) -> str | None:
    """The least string that is greater than all that begin with `prefix`, in byte order; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if 0xD800 <= point <= 0xDFFF else point)
        prefix = prefix[:-1]
    return None


def pattern_for(text: str) -> str:
    """An ILIKE pattern for bodies that contain the text as JSON spells it."""
    needle = msgspec.json.encode(text)[1:-1].decode()
    return "%" + needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
