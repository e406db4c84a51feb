"""Pages of sessions: which statement lists them, its parameters, and the meaning of its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.backend import Where
from everturn.backends._shared import paging
from everturn.backends._shared.verification import unreadable_session
from everturn.backends.postgres.executor import Rows
from everturn.core.facts import decode_facts, encode_facts
from everturn.model import Page

LAST = 2**62  # past every session number and seq


def call_for(prefix: str, where: Where | None, token: paging.Token) -> tuple[str, tuple[Any, ...]]:
    """Choose the statement of calls.sql, and make its parameters behind the namespace and before the limit."""
    bounds = (prefix, paging.beyond(prefix), token.session_id, token.bound)
    if where:
        return "sessions_by_fact", (encode_facts(where), token.by_change, *bounds)
    return "sessions_by_change" if token.by_change else "sessions_by_name", bounds


def page_in(rows: Rows, token: paging.Token, limit: int) -> Page:
    """Read rows of the type listed_v4. Raises CorruptEntry for facts that are none.

    A damaged session has no life among them. It is listed by name; in the order of change nobody knows its place.
    """
    for session_id, life, *_ in rows:
        if not life and token.order == "recent":
            raise unreadable_session(session_id, ValueError("it is lost, or not as it was written"))
    return paging.page_of([(*row[:-1], _facts(row)) for row in rows], token, limit)


def _facts(row: Sequence[Any]) -> dict[str, str]:
    try:
        return decode_facts(row[-1])
    except msgspec.MsgspecError as exc:
        raise unreadable_session(row[0], exc) from exc
