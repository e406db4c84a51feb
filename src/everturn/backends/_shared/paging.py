"""What backends share about looking across sessions: pages and their tokens, prefixes as bounds, texts as patterns.

Pure. The statements, and Redis's way of going through keys, are the backends' own.
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

AFTER_ALL = 1e300  # no session changed as late
T = TypeVar("T")


def write(token: msgspec.Struct) -> str:
    """A token as the `next` of a page: opaque, and fit for a URL."""
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def read(page: str, kind: type[T]) -> T:
    """The token in a page's `next`. Raises InvalidInput for what is none of this kind."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(page.encode()), type=kind)
    except (ValueError, msgspec.MsgspecError) as exc:
        if is_interruption(exc):
            raise
        raise not_a_page() from None


def not_a_page() -> InvalidInput:
    return InvalidInput("is not the `next` of a page in this order", path="page")


class Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Where the next page begins, in a backend that keeps sessions in order.

    By name: past `session_id`. By change: before (`changed_at`, `session_id`), down to the oldest; then, with `again`,
    those that changed since paging began, by name: one that moved to the front meanwhile is not missed.
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
        """By change: list what changed before this. By name: what changed since."""
        if self.by_change:
            return self.changed_at
        return self.began if self.again else 0.0


def token_of(page: str | None, order: Order) -> Token:
    """The token to go on with. Raises InvalidInput for one of another order."""
    token = Token(order) if page is None else read(page, Token)
    if token.order != order:
        raise not_a_page()
    return token


def begun(token: Token, now: float) -> Token:
    """The first token of those by change: what changes from now on is listed again at the end."""
    return msgspec.structs.replace(token, began=now)


def page_of(rows: Sequence[Sequence[Any]], token: Token, limit: int) -> Page:
    """The page that these rows of sessions make."""
    found = tuple(SessionInfo(*row) for row in rows)
    if not token.by_change:
        if len(found) < limit:
            return Page(found, None)
        return Page(found, write(msgspec.structs.replace(token, session_id=found[-1].session_id)))
    if len(found) < limit:
        return Page(found, None if token.is_first else write(Token(token.order, "", 0.0, token.began, again=True)))
    return Page(found, write(Token(token.order, found[-1].session_id, found[-1].changed_at, token.began)))


def beyond(prefix: str) -> str | None:
    """The least string that is greater than all that begin with `prefix`, in byte order; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if 0xD800 <= point <= 0xDFFF else point)
        prefix = prefix[:-1]
    return None


def spelled(text: str) -> str:
    """A text as JSON spells it within a body."""
    return msgspec.json.encode(text)[1:-1].decode()


def pattern_for(text: str) -> str:
    """A LIKE pattern, escaped by a backslash, for bodies that contain the text."""
    return "%" + spelled(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
