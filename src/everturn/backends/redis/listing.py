"""Reads across sessions: pages of them by SCAN, and text search within one. Reads of one session are in reads.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from everturn.backend import Order, Query
from everturn.backends._shared import paging
from everturn.backends.redis import errors, scripts
from everturn.backends.redis.changes import damaged_session
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart, Refusal
from everturn.backends.redis.keys import STAGED, KeyNames
from everturn.backends.redis.reads import collect, entry_rows
from everturn.backends.redis.session_state import FACTS_ONLY, view_of
from everturn.backends.redis.transport.blocking_pool import where
from everturn.core.codec import EntryRow, missing
from everturn.core.text_search import fold
from everturn.errors import InvalidInput, Unsupported
from everturn.model import Page, SessionInfo

SCANNED = 1000  # keys looked at by one SCAN
FEW_SCANS = 16  # a server that can be scanned so quickly is scanned for every page, to list it in order
DONE = 1 << 20  # past every master


class _PageToken(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The place where the next page begins.

    In a small store: past the id `past`. In a large one: first the ids in `left`, which were found and not listed yet,
    then those that `master` gives from `cursor` on.
    """

    past: str | None = None
    left: list[str] = []
    master: int = -1
    cursor: str = "0"


async def sessions(
    sender: Sender, names: KeyNames, prefix: str, limit: int, page: str | None, order: Order, now: str, deadline: float
) -> Page:
    """Return one page of live sessions: ordered by id, but in a large store only within a page. No session is missed.
    In a large store one may come twice, as with SCAN."""
    if order is not None:
        raise Unsupported(
            "Redis keeps no order of change over all sessions; read all pages of sessions() and sort by changed_at, "
            "or use SQLite or PostgreSQL"
        )
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which no id has", path="prefix") from None
    token = _PageToken(past="") if page is None else paging.read(page, _PageToken)
    if token.past is not None:
        past = token.past.encode()
        ids = await _few(sender, names, prefix, deadline)
        if ids is not None:
            following = sorted((name for name in ids if name.encode() > past), key=str.encode)
            infos = await _infos(sender, names, following[:limit], now, deadline)
            more = len(following) > limit
            return Page(infos, paging.write(_PageToken(past=following[limit - 1])) if more else None)
        token = _PageToken()
    return await _many(sender, names, prefix, limit, token, now, deadline)


async def _few(sender: Sender, names: KeyNames, prefix: str, deadline: float) -> set[str] | None:
    """Return every id with the prefix; None if there are too many keys to scan for each page."""
    token = _PageToken()
    found: set[str] = set()
    for _ in range(FEW_SCANS):
        token, ids = await _scan(sender, names, prefix, token, deadline)
        found.update(ids)
        if token.master == DONE:
            return found
    return None


async def _many(
    sender: Sender, names: KeyNames, prefix: str, limit: int, token: _PageToken, now: str, deadline: float
) -> Page:
    half_time = (time.monotonic() + deadline) / 2
    found = set(token.left)
    while token.master != DONE and len(found) < limit and time.monotonic() < half_time:
        token, ids = await _scan(sender, names, prefix, token, deadline)
        found.update(ids)
    names_found = sorted(found, key=str.encode)
    infos = await _infos(sender, names, names_found[:limit], now, deadline)
    if token.master == DONE and len(found) <= limit:
        return Page(infos, None)
    return Page(infos, paging.write(_PageToken(None, names_found[limit:], token.master, token.cursor)))


async def _scan(
    sender: Sender, names: KeyNames, prefix: str, token: _PageToken, deadline: float
) -> tuple[_PageToken, list[str]]:
    """Do one SCAN, on the master that the token names, or the first one after it. Returns the next token, and ids."""
    masters = await sender.topology.masters(deadline)
    following = [(number, node) for number, node in masters if number >= token.master]
    if not following:
        return _PageToken(master=DONE), []
    (number, node), *later = following
    cursor = token.cursor if number == token.master else "0"
    # Every part, not meta alone: a session that has lost its meta is damaged, not gone.
    command = ("SCAN", cursor, "MATCH", names.pattern(prefix, "*"), "COUNT", SCANNED)
    (reply,) = await sender.transport.exchange(node, [command], deadline)
    if isinstance(reply, Refusal):
        raise errors.refused(reply, where(node))
    ids = [names.session_of(key) for key in reply[1] if STAGED not in key]
    if reply[0] != b"0":
        return _PageToken(master=number, cursor=reply[0].decode()), ids
    return _PageToken(master=later[0][0] if later else DONE), ids


async def _infos(
    sender: Sender, names: KeyNames, ids: Sequence[str], now: str, deadline: float
) -> tuple[SessionInfo, ...]:
    """Read the facts of sessions, one round trip a node. Sessions that are gone are left out. Raises CorruptEntry for a
    damaged one: leaving it out would hide the damage."""
    found: list[SessionInfo] = []
    requests = [(names.keys(session_id), (now, *FACTS_ONLY)) for session_id in ids]
    for session_id, reply in zip(ids, await sender.read_many(scripts.SESSION_STATE, requests, deadline), strict=True):
        if isinstance(reply, DamagedPart):
            raise damaged_session(session_id, reply.part)
        seen = view_of(session_id, reply)
        if seen.session is not None:
            found.append(seen.session.info)
    return tuple(found)


async def find(
    sender: Sender,
    names: KeyNames,
    text: str,
    session_id: str | None,
    take: Callable[[str, EntryRow], bool],
    now: str,
    deadline: float,
) -> None:
    """Hand visible entries of one session whose body may hold the text to `take`, newest first."""
    if session_id is None:
        raise Unsupported(
            "Redis has no index to search all sessions by; name a session_id, or go through sessions() one by one, or "
            "use SQLite or PostgreSQL"
        )
    needle = fold(paging.spelled(text)).encode()
    found = await collect(sender, names.keys(session_id), Query(session_id), now, deadline)
    if found.first_missing:
        raise missing(session_id, found.first_missing)
    for row in entry_rows(found.log, reversed(found.seqs)):
        if needle in row[3].lower() and not take(session_id, row):
            return
