"""Reads across sessions: pages of them by SCAN, and text search within one. Reads of one session are in reads.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from everturn.backend import Order, Query, Where, has_facts
from everturn.backends._shared import paging
from everturn.backends.redis import errors, scripts
from everturn.backends.redis.changes import damaged_session
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart, Refusal
from everturn.backends.redis.keys import STAGED, KeyNames
from everturn.backends.redis.reads import collect, entry_rows
from everturn.backends.redis.session_state import FIELDS_ONLY, view_of
from everturn.backends.redis.transport.blocking_pool import where
from everturn.core.codec import EntryRow, missing
from everturn.core.text_search import fold
from everturn.errors import InvalidInput, Unsupported
from everturn.model import Page, SessionInfo

SCANNED = 1000  # keys looked at by one SCAN
READ_AT_ONCE = 100  # sessions that one round trip reads
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


class PageRequest(msgspec.Struct, frozen=True):
    """Sessions that a page is to list: their prefix, their facts, and how many."""

    prefix: str
    where: Where
    limit: int


async def sessions(
    sender: Sender, names: KeyNames, wanted: PageRequest, page: str | None, order: Order, now: str, deadline: float
) -> Page:
    """Return one page of live sessions: ordered by id, but in a large store only within a page. No session is missed.
    In a large store one may come twice, as with SCAN.

    Sessions with certain facts are found by a look at every session, for as long as half of the time is not over."""
    if order is not None:
        raise Unsupported(
            "Redis keeps no order of change over all sessions; read all pages of sessions() and sort by changed_at, "
            "or use SQLite or PostgreSQL"
        )
    try:
        wanted.prefix.encode()
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which no id has", path="prefix") from None
    token = _PageToken(past="") if page is None else paging.read(page, _PageToken)
    listing = _Listing(sender, names, wanted, now, deadline)
    if token.past is not None:
        past = token.past.encode()
        ids = await listing.few()
        if ids is not None:
            following = sorted((name for name in ids if name.encode() > past), key=str.encode)
            infos, looked_at = await listing.infos(following, wanted.limit)
            more = len(following) > looked_at
            return Page(infos, paging.write(_PageToken(past=following[looked_at - 1])) if more else None)
        token = _PageToken()
    return await listing.many(token)


class _Listing:
    """Reads one page."""

    def __init__(self, sender: Sender, names: KeyNames, wanted: PageRequest, now: str, deadline: float) -> None:
        self._sender = sender
        self._names = names
        self._wanted = wanted
        self._now = now
        self._deadline = deadline
        self._half_time = (time.monotonic() + deadline) / 2

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._half_time

    async def few(self) -> set[str] | None:
        """Return every id with the prefix; None if there are too many keys to scan for each page."""
        token = _PageToken()
        found: set[str] = set()
        for _ in range(FEW_SCANS):
            token, ids = await _scan(self._sender, self._names, self._wanted.prefix, token, self._deadline)
            found.update(ids)
            if token.master == DONE:
                return found
        return None

    async def many(self, token: _PageToken) -> Page:
        """Return a page of a store that has too many keys to scan for each page."""
        limit = self._wanted.limit
        left, seen = set(token.left), set[str]()
        infos: tuple[SessionInfo, ...] = ()
        while True:
            while token.master != DONE and len(left) < limit and self._has_time:
                token, ids = await _scan(self._sender, self._names, self._wanted.prefix, token, self._deadline)
                left.update(each for each in ids if each not in seen)  # a session has several keys
            found = sorted(left, key=str.encode)
            some, looked_at = await self.infos(found, limit - len(infos))
            infos, left = (*infos, *some), set(found[looked_at:])
            seen.update(found[:looked_at])
            if token.master == DONE and not left:
                return Page(infos, None)
            if not self._wanted.where or len(infos) >= limit or not self._has_time:
                return Page(infos, paging.write(_PageToken(None, found[looked_at:], token.master, token.cursor)))

    async def infos(self, ids: Sequence[str], most: int) -> tuple[tuple[SessionInfo, ...], int]:
        """Read sessions in this order until enough of them have the facts asked for, or half of the time is over.
        Returns them, and how many ids were looked at."""
        if not self._wanted.where:
            return await _infos(self._sender, self._names, ids[:most], self._now, self._deadline), min(most, len(ids))
        found: list[SessionInfo] = []
        looked_at = 0
        while looked_at < len(ids) and len(found) < most and (self._has_time or not looked_at):
            some = ids[looked_at : looked_at + READ_AT_ONCE]
            infos = await _infos(self._sender, self._names, some, self._now, self._deadline)
            found += [info for info in infos if has_facts(info.facts, self._wanted.where)]
            looked_at += len(some)
        if len(found) > most:
            looked_at = ids.index(found[most - 1].session_id) + 1
        return tuple(found[:most]), looked_at


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
    """Read the meta of sessions, one round trip a node. Sessions that are gone are left out. Raises CorruptEntry for a
    damaged one: leaving it out would hide the damage."""
    found: list[SessionInfo] = []
    requests = [(names.keys(session_id), (now, *FIELDS_ONLY)) for session_id in ids]
    for session_id, reply in zip(ids, await sender.read_many(scripts.SESSION_STATE, requests, deadline), strict=True):
        if isinstance(reply, DamagedPart):
            raise damaged_session(session_id, reply.part)
        view = view_of(session_id, reply)
        if view.session is not None:
            found.append(view.session.info)
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
