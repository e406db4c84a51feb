"""Pages of sessions and their tokens, prefixes as bounds, texts as LIKE patterns. Pure.

The statements, and Redis's scan of keys, are the backends' own.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from everturn.backend import Order
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import InvalidInput
from everturn.model import Page, SessionInfo

AFTER_ALL = 1e300  # later than any change of a session
T = TypeVar("T")


def write(token: msgspec.Struct) -> str:
    """Encode a token as the `next` of a page: opaque, and safe in a URL."""
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def read(page: str, kind: type[T]) -> T:
    """Decode a page's `next`. Raises InvalidInput if it is no token of this kind."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(page.encode()), type=kind)
    except (ValueError, msgspec.MsgspecError) as exc:
        if is_interruption(exc):
            raise
        raise not_a_page() from None


def not_a_page() -> InvalidInput:
    return InvalidInput("is not the `next` of a page in this order", path="page")


class Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Beginning of the next page, in a backend that keeps sessions in order.

    By name: past `session_id`. By change: before (`changed_at`, `session_id`), down to the oldest. Then, with `again`,
    the sessions that changed since paging began, by name: so none is missed that moved to the front meanwhile.
    """

    order: Order
    session_id: str = ""
    changed_at: float = AFTER_ALL
    began: float = 0.0
    again: bool = False

    @property
    def is_first(self) -> bool:
        return self.changed_at == AFTER_ALL

    @property
    def by_change(self) -> bool:
        return self.order == "recent" and not self.again

    @property
    def bound(self) -> float:
        """Time that limits the page. By change: sessions that changed before it. By name: those that changed since."""
        if self.by_change:
            return self.changed_at
        return self.began if self.again else 0.0


def token_of(page: str | None, order: Order) -> Token:
    """Decode the token to go on with; None begins. Raises InvalidInput for a token of another order."""
    token = Token(order) if page is None else read(page, Token)
    if token.order != order:
        raise not_a_page()
    return token


def begun(token: Token, now: float) -> Token:
    """Begin paging by change: sessions that change from now on are listed again at the end."""
    return msgspec.structs.replace(token, began=now)


def page_of(rows: Sequence[Sequence[Any]], token: Token, limit: int) -> Page:
    """Make a page of these rows of sessions, with the token of the next page."""
    found = tuple(SessionInfo(*row) for row in rows)
    if not token.by_change:
        if len(found) < limit:
            return Page(found, None)
        return Page(found, write(msgspec.structs.replace(token, session_id=found[-1].session_id)))
    if len(found) < limit:
        return Page(found, None if token.is_first else write(Token(token.order, "", 0.0, token.began, again=True)))
    return Page(found, write(Token(token.order, found[-1].session_id, found[-1].changed_at, token.began)))


def beyond(prefix: str) -> str | None:
    """Find the least string that is greater than all strings with this prefix, in byte order; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if 0xD800 <= point <= 0xDFFF else point)
        prefix = prefix[:-1]
    return None


def spelled(text: str) -> str:
    """Spell a text as JSON does within a body."""
    return msgspec.json.encode(text)[1:-1].decode()


def pattern_for(text: str) -> str:
    """Make a LIKE pattern, escaped by a backslash, for bodies that contain the text."""
    return "%" + spelled(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
