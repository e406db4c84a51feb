"""Reads of a LangGraph thread's session: only as far back as needed, and nothing that is cached. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    CorruptEntry,
    InvalidInput,
    SessionInfo,
    SessionNotFound,
)
from everturn.adapters.langgraph.cache import PASSED, ChannelContents, SeqMessages, ThreadCache, ThreadView
from everturn.adapters.langgraph.checkpoint_log import (
    CHECKPOINT,
    LEFT,
    MESSAGES,
    CheckpointLog,
    NeedsEarlierEntries,
    Object,
    Ranges,
    Ref,
    StoredCheckpoint,
    seqs_in,
)
from everturn.adapters.langgraph.message_refs import Conversation, input_messages_ref
from everturn.adapters.langgraph.values import ChannelCodec, StoredMessage
from everturn.model import JSON, MESSAGE

WINDOW = 128  # entries read first, if nothing is cached
NEAR = 32  # two wanted entries closer than this are read together
TRIES = 5  # reads of a session that changes meanwhile, before it is called corrupt

T = TypeVar("T")


class SessionMoved(Exception):
    """The session changed while it was being read: entries have other seqs, or are gone."""


class SessionReader:
    """Reads sessions. Every result is of one version of the session."""

    def __init__(self, store: AsyncMemoryStore, codec: ChannelCodec, cache: ThreadCache) -> None:
        self._store = store
        self._codec = codec
        self._cache = cache

    async def view(self, session_id: str) -> ThreadView:
        """Return the session as it is now. An absent session is at version 0."""
        known = self._cache.get(session_id)
        if known is not None and known.version:
            try:
                now = await self._store.info(session_id)
            except SessionNotFound:
                return self._remember(ThreadView(session_id))
            if (now.life, now.version) == (known.life, known.version):
                return known
        full_seq = known.stored.full_seq if known is not None and known.stored is not None else None
        view, log = await self.view_and_log(session_id, full_seq)
        if log.start == 1:  # the whole session was read, so its values are at hand
            with suppress(SessionMoved):
                return await self._filled(view, log)
        return view

    async def view_and_log(
        self, session_id: str, start: int | None = None, *, until: Callable[[CheckpointLog], bool] = lambda _: True
    ) -> tuple[ThreadView, CheckpointLog]:
        """Return the view and the log that it was made from.

        The log begins at `start`, or as much earlier as the view needs and `until` asks for.
        """
        if start is None:
            try:
                session = await self._store.info(session_id)
            except SessionNotFound:
                return self._remember(ThreadView(session_id)), CheckpointLog(1, (), life="", version=0, last_seq=0)
            start = max(1, session.last_seq - WINDOW + 1)
        log = await self.log(session_id, start)

        def seen(log: CheckpointLog) -> ThreadView | None:
            return _view_of(session_id, log) if log.start == 1 or (log.bodies and until(log)) else None

        while True:
            view, log = await self.look_back(session_id, log, seen)
            if view is not None:
                return self._remember(view), log
            log = await self.earlier(session_id, log, log.start - 4 * max(WINDOW, len(log.entries)))

    async def look_back(
        self, session_id: str, log: CheckpointLog, read: Callable[[CheckpointLog], T]
    ) -> tuple[T, CheckpointLog]:
        """Call `read` on the log, which is extended backwards as often as it raises NeedsEarlierEntries."""
        while True:
            try:
                return read(log), log
            except NeedsEarlierEntries as exc:
                if log.start == 1:
                    raise lost(session_id, next(reversed(log.bodies)), exc.seq) from exc
                log = await self.earlier(session_id, log, exc.seq)

    def _remember(self, view: ThreadView) -> ThreadView:
        known = self._cache.get(view.session_id)
        if known is not None and (known.life, known.version) == (view.life, view.version):
            return known
        self._cache.put(view)
        return view

    async def log(self, session_id: str, start: int = 1) -> CheckpointLog:
        """Read the entries from a seq on."""
        state = await self._store.state(session_id, after=start - 1)
        return CheckpointLog(start, state.entries, life=state.life, version=state.version, last_seq=state.last_seq)

    async def earlier(self, session_id: str, log: CheckpointLog, start: int) -> CheckpointLog:
        """Extend a log back to an earlier seq, at its version; if that is gone, read the present version instead."""
        start = max(1, min(start, log.start - 1))
        try:
            state = await self._store.state(session_id, at=log.version, after=start - 1, before=log.start)
        except InvalidInput:  # the version was reclaimed
            return await self.log(session_id, start)
        if state.life != log.life:
            return await self.log(session_id, start)
        return log.before(start, state.entries)

    async def sessions(self, prefix: str) -> AsyncIterator[SessionInfo]:
        """Yield all sessions whose id has this prefix."""
        page = None
        while True:
            found = await self._store.sessions(prefix, limit=500, page=page)
            for session in found.sessions:
                yield session
            if (page := found.next) is None:
                return

    # --- contents ----------------------------------------------------------------------------------------------------

    async def contents(self, view: ThreadView) -> ChannelContents:
        """Return all values of a view's checkpoint, reading those that are not cached."""
        if view.stored is None or not unknown(view.contents, view.stored, view.stored.refs):
            return view.contents
        return (await self._filled(view)).contents

    async def _filled(self, view: ThreadView, log: CheckpointLog | None = None) -> ThreadView:
        if view.stored is None:
            return view
        filled = await self.fill(view.session_id, view.stored, view.contents, view.stored.refs, log)
        if filled is not view.contents:
            view = msgspec.structs.replace(view, contents=filled)
            self._cache.put(view)
        return view

    async def fill(
        self,
        session_id: str,
        stored: StoredCheckpoint,
        known: ChannelContents,
        channels: Iterable[str],
        log: CheckpointLog | None = None,
    ) -> ChannelContents:
        """Read the values of channels that are not known yet. Raises SessionMoved if the session changed meanwhile."""
        missing = unknown(known, stored, channels)
        if not missing:
            return known
        said, left, nodes, lists = known.said, known.left, dict(known.nodes), dict(known.lists)
        holders: dict[str, int] = {}
        for channel in missing:
            ref = stored.refs[channel]
            if isinstance(ref, int):
                holders[channel] = ref
            elif "said" in ref:
                said, left = await self._said(session_id, ref, log)
            else:
                lists[channel] = await self._pieces(session_id, channel, ref, stored, log)
        if holders:
            bodies = await self._bodies(session_id, sorted(set(holders.values()) - {stored.seq}), log)
            nodes |= {
                channel: (stored.values if seq == stored.seq else bodies[seq].get("values", {}))[channel]
                for channel, seq in holders.items()
            }
        return ChannelContents(said, left, nodes, lists, known.input_messages)

    async def unclaimed(self, view: ThreadView) -> SeqMessages:
        """Return the messages after those of the view's checkpoint: appended by others, in no checkpoint yet."""
        ref = view.stored.refs.get(MESSAGES) if view.stored else None
        known: Object = ref if isinstance(ref, dict) and "said" in ref else {"said": [], "closed": True}
        if not (view.unclaimed or "closed" in known) or not view.version:
            return ()
        if view.contents.input_messages and not view.unclaimed:
            return view.contents.input_messages
        after = max([0, *(bounds[1] for bounds in known["said"] if len(bounds) == 2)])
        state = await self._store.state(view.session_id, kind=MESSAGE, after=after)
        if (state.life, state.version) != (view.life, view.version):
            raise SessionMoved
        return tuple([(entry.seq or 0, self._codec.stored_message(entry)) for entry in state.messages])

    async def input_messages(
        self, session_id: str, stored: StoredCheckpoint | None, log: CheckpointLog | None = None
    ) -> Conversation | None:
        """Return the messages in a subgraph's input, if this is its first checkpoint; else None.

        Raises SessionMoved if some of them are gone.
        """
        ref = input_messages_ref(stored)
        if ref is None:
            return None
        said, left = await self._said(session_id, ref, log)
        return Conversation(said, ref["said"], left)

    async def _said(self, session_id: str, ref: Ref, log: CheckpointLog | None) -> tuple[SeqMessages, frozenset[int]]:
        (said,), left = await self._all_said(session_id, [ref], log)
        return said, left.intersection([seq for seq, _ in said])

    async def all_said(self, session_id: str, refs: Sequence[Ref], log: CheckpointLog | None) -> list[SeqMessages]:
        """Return the messages of each ref, in one read. Raises SessionMoved if some are gone."""
        return (await self._all_said(session_id, refs, log))[0]

    async def _all_said(
        self, session_id: str, refs: Sequence[Ref], log: CheckpointLog | None
    ) -> tuple[list[SeqMessages], frozenset[int]]:
        """Return the messages of each ref, and the seqs of those on a left branch."""
        ranges: Ranges = [bounds for ref in refs for bounds in ref["said"]]
        spoken = [bounds for bounds in ranges if len(bounds) == 2]
        left = [bounds for bounds in ranges if len(bounds) == 3]
        memo: dict[int, StoredMessage] = {}
        if log is not None and all(bounds[0] >= log.start for bounds in ranges):
            entries, aside, memo = log.said, log.left, log.memo
        else:
            entries = {entry.seq or 0: entry for entry in await self._between(MESSAGE, session_id, spoken)}
            aside = {
                entry.seq or 0: ChatMessage.from_dict(entry.body)
                for entry in await self._between(LEFT, session_id, left)
            }
        all_found = []
        said_seqs, left_seqs = sorted(entries), sorted(aside)
        for ref in refs:
            found = seqs_in(ref["said"], said_seqs, left_seqs)
            if len(found) != ref["n"]:
                raise SessionMoved
            for seq in found:
                if seq not in memo:
                    memo[seq] = self._codec.stored_message(entries[seq] if seq in entries else aside[seq])
            all_found.append(tuple([(seq, memo[seq]) for seq in found]))
        return all_found, frozenset(aside)

    async def _pieces(
        self, session_id: str, channel: str, ref: Ref, stored: StoredCheckpoint, log: CheckpointLog | None
    ) -> list[JSON]:
        ranges: Ranges = ref["list"]
        if log is not None and all(bounds[0] >= log.start for bounds in ranges):
            bodies = log.bodies
        else:
            bodies = {entry.seq or 0: entry.body for entry in await self._between(CHECKPOINT, session_id, ranges)}
        pieces = {seq: body["pieces"][channel] for seq, body in bodies.items() if channel in body.get("pieces", {})}
        if stored.seq not in pieces and channel in stored.pieces:
            pieces[stored.seq] = stored.pieces[channel]
        found = [node for seq in seqs_in(ranges, sorted(pieces), ()) for node in pieces[seq]]
        if len(found) != ref["n"]:
            raise SessionMoved
        return found

    async def _bodies(self, session_id: str, seqs: Sequence[int], log: CheckpointLog | None) -> dict[int, Object]:
        bodies = {seq: log.bodies[seq] for seq in seqs if log is not None and seq in log.bodies}
        wanted = [seq for seq in seqs if seq not in bodies]
        while wanted:
            near = [seq for seq in wanted if seq - wanted[0] < NEAR]
            found = await self._between(CHECKPOINT, session_id, [[near[0], near[-1]]])
            bodies |= {entry.seq or 0: entry.body for entry in found}
            if not set(near) <= bodies.keys():
                raise SessionMoved
            wanted = wanted[len(near) :]
        return bodies

    async def _between(self, kind: str, session_id: str, ranges: Ranges) -> Sequence[Any]:
        if not ranges:
            return ()
        after, before = min(bounds[0] for bounds in ranges) - 1, max(bounds[1] for bounds in ranges) + 1
        if kind == MESSAGE:  # get_history decodes messages in half the time of state
            said: Sequence[ChatMessage] = await self._store.get_history(session_id, after=after, before=before)
            return said
        state = await self._store.state(session_id, kind=kind, after=after, before=before)
        return state.entries


def unknown(known: ChannelContents, stored: StoredCheckpoint, channels: Iterable[str]) -> list[str]:
    """Return those of a checkpoint's channels whose values are not known yet."""
    refs, missing = stored.refs, []
    for channel in channels:
        ref = refs[channel]
        if type(ref) is int:
            is_known = channel in known.nodes
        else:
            is_known = "is" in ref or (known.said is not None if "said" in ref else channel in known.lists)
        if not is_known:
            missing.append(channel)
    return missing


def _view_of(session_id: str, log: CheckpointLog) -> ThreadView:
    stored = log.latest
    bodies = {seq: body for all_ in log.writes.values() for seq, body in all_}
    awaiting = []
    for name, seq in log.awaiting(stored):
        if seq not in bodies:
            raise NeedsEarlierEntries(seq)
        awaiting.append((name, seq, bodies[seq]))
    return ThreadView(
        session_id,
        log.life,
        log.version,
        log.last_seq,
        stored,
        tuple(log.writes_of(stored)) if stored else (),
        tuple(awaiting),
        any(seq > stored.seq for seq in log.said) if stored else bool(log.said),
        tuple(log.seqs)[-PASSED:-1],
    )


def lost(session_id: str, seq: int, needed: int | None = None) -> CorruptEntry:
    """Make the error for a checkpoint that needs entries which are not in the session's history."""
    which = "entries" if needed is None else f"entry {needed}"
    return CorruptEntry(
        f"session {session_id!r}, entry {seq}: it is a checkpoint that needs {which} which cannot be seen any more: "
        "hidden by a trim (undo it), or lost (verify tells). Nothing was changed",
        session_id=session_id,
        seq=seq,
    )
