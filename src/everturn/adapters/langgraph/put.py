"""LangGraph's `put` and `put_writes`: a checkpoint, or the writes of a task, appended in one turn or not at all.

checkpoint_entries.py makes the entries. This module finds the version to append to, and tries again on a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from everturn import AsyncMemoryStore, InvalidInput, Receipt, VersionConflict
from everturn.adapters._shared.values import RoundTripError, equal
from everturn.adapters.langgraph.cache import PASSED, Awaiting, ChannelContents, ThreadCache, ThreadView
from everturn.adapters.langgraph.checkpoint_entries import (
    CheckpointComposer,
    CheckpointPut,
    ComposedPut,
    passes_input_on,
    writes_record,
)
from everturn.adapters.langgraph.checkpoint_log import INPUT, MESSAGES, Object, StoredCheckpoint, recent
from everturn.adapters.langgraph.errors import refused, refused_by_store
from everturn.adapters.langgraph.message_refs import QuotingCodec, conversation_in
from everturn.adapters.langgraph.rewrite import base_in_history, entries_to_leave
from everturn.adapters.langgraph.session_reader import TRIES, SessionMoved, SessionReader, lost, unknown
from everturn.adapters.langgraph.thread_lock import ThreadLock
from everturn.adapters.langgraph.thread_run import LeasedRuns
from everturn.adapters.langgraph.values import ChannelCodec
from everturn.model import JSON

OnConflict: TypeAlias = Literal["raise", "last_wins"]


class CheckpointPuts:
    """The puts of an EverturnSaver, as coroutines for a CallRunner."""

    def __init__(
        self,
        store: AsyncMemoryStore,
        reader: SessionReader,
        codec: ChannelCodec,
        cache: ThreadCache,
        lock: ThreadLock,
        runs: LeasedRuns,
    ) -> None:
        self._store = store
        self._reader = reader
        self._codec = codec
        self._cache = cache
        self._lock = lock
        self._runs = runs

    async def put(self, put: CheckpointPut, on_conflict: OnConflict) -> None:
        """Append a checkpoint in one turn. Raises VersionConflict if another run has put a checkpoint meanwhile."""
        async with self._lock.hold(put.session_id):
            await self._put(put, on_conflict)

    async def _put(self, put: CheckpointPut, on_conflict: OnConflict) -> None:
        view = self._cache.get(put.session_id)
        is_fresh = view is None
        if view is None:
            view = await self._reader.view(put.session_id)
        misses = 0
        while True:
            if not _may_follow(put, view, on_conflict):
                if is_fresh:
                    raise _conflict(put, view)
                view, is_fresh = await self._reader.view(put.session_id), True
                continue
            try:
                draft, receipt, awaiting = await self._append(put, view)
            except (VersionConflict, SessionMoved) as exc:
                misses += isinstance(exc, SessionMoved)
                if misses == TRIES and view.stored is not None:
                    raise lost(put.session_id, view.stored.seq) from exc
                self._cache.forget(put.session_id)
                view, is_fresh = await self._reader.view(put.session_id), True
            else:
                self._cache.put(_view_after(put, view, draft, receipt, awaiting))
                return

    async def _append(self, put: CheckpointPut, view: ThreadView) -> tuple[ComposedPut, Receipt, Awaiting]:
        base = view.stored
        if base is not None and base.id not in (put.parent, put.id):
            return await self._append_elsewhere(put, view)
        known = view.contents
        if base is not None and unknown(known, base, base.refs):
            known = await self._reader.fill(view.session_id, base, known, _changing(put, base))
        unclaimed = await self._reader.unclaimed(view) if MESSAGES in put.checkpoint["channel_values"] else ()
        again = view if base is not None and base.id == put.id else None
        input_messages = await self._reader.input_messages(view.session_id, base) if again else None
        first = view.last_seq + 1
        begins = base is None and not view.unclaimed
        composer = CheckpointComposer(
            self._codec,
            put,
            base,
            known,
            first=first,
            directly=True,
            unclaimed=unclaimed,
            input_messages=input_messages,
            begins=begins,
        )
        draft = self._draft(composer, put, view.awaiting, again)
        lease = await self._runs.fence(put.session_id)
        try:
            receipt = await self._store.append(
                put.session_id, draft.entries, expected_version=view.expected, lease=lease
            )
        except InvalidInput as exc:
            raise refused_by_store(put.thread, put.id, draft.entries, exc) from exc
        return draft, receipt, view.awaiting

    async def _append_elsewhere(self, put: CheckpointPut, view: ThreadView) -> tuple[ComposedPut, Receipt, Awaiting]:
        """Append a checkpoint whose parent is not the latest: time travel, in one replace.

        Messages after the parent leave the history and are stored as those of a left branch. All else stays.
        """
        now, log = await self._reader.view_and_log(
            put.session_id, view.stored.full_seq if view.stored else None, until=lambda log: put.parent in log.seqs
        )
        if now.version != view.version or now.life != view.life:
            raise SessionMoved
        base = log.checkpoint_at(log.seqs[put.parent]) if put.parent in log.seqs else None
        known = ChannelContents()
        if base is not None:
            base, known = base_in_history(base, await self._reader.fill(put.session_id, base, known, base.refs, log))
        entries, places, after = entries_to_leave(log, base.seq if base else 0)
        first = view.last_seq + 1 + len(entries)
        input_messages = await self._reader.input_messages(put.session_id, base, log)
        unclaimed = (
            tuple([item for item in input_messages.said if item[0] not in input_messages.left])
            if input_messages
            else ()
        )
        begins = base is None
        composer = CheckpointComposer(
            self._codec, put, base, known, first=first, directly=False, unclaimed=unclaimed, begins=begins
        )
        awaiting = tuple([(name, places.get(seq, seq), body) for name, seq, body in view.awaiting])
        draft = self._draft(composer, put, awaiting)
        together = [*entries, *draft.entries]
        lease = await self._runs.fence(put.session_id)
        try:
            if after is None:
                receipt = await self._store.append(
                    put.session_id, together, expected_version=view.expected, lease=lease
                )
            else:
                receipt = await self._store.replace(
                    put.session_id, together, after=after, expected_version=view.expected, lease=lease
                )
        except InvalidInput as exc:
            raise refused_by_store(put.thread, put.id, together, exc) from exc
        return draft, receipt, awaiting

    def _draft(
        self, composer: CheckpointComposer, put: CheckpointPut, awaiting: Awaiting, again: ThreadView | None = None
    ) -> ComposedPut:
        """Compose the entries. `again`: the view of the same checkpoint, if it is put again; its writes stay."""
        early = [seq for seq, _ in again.writes] if again else []
        later: list[tuple[str, int]] = []
        for name, seq, _ in awaiting:
            if name == put.id:
                early.append(seq)
            else:
                later.append((name, seq))
        draft = composer.compose(early=early, awaiting=later)
        given = draft.stored.values.get(INPUT)
        if (
            again
            and again.stored
            and not equal(again.stored.values.get(INPUT), given)
            and passes_input_on(again.writes)
        ):
            text = "was put before with another input, which what was written for it stands on; give it another id"
            raise InvalidInput(text, path=f"thread {put.thread!r}, checkpoint {put.id!r}")
        self._cache.expect(put.session_id, put.id, draft.given)
        return draft

    async def put_writes(
        self, thread: str, session_id: str, checkpoint: str, task: str, path: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Append the writes of a task in one turn, whichever checkpoint the thread is at."""
        seen = self._cache.get(session_id)
        quoting = QuotingCodec(self._codec, conversation_in(seen))
        nodes = []
        for channel, value in writes:
            try:
                nodes.append((channel, quoting.encode(value)))
            except RoundTripError as exc:
                raise refused(thread, checkpoint, channel, exc) from exc
        async with self._lock.hold(session_id):
            if quoting.has_quoted:
                view = self._cache.get(session_id)
                if view is not None and seen is not None and _still_says(view, seen):
                    with suppress(VersionConflict):
                        await self._append_writes(thread, session_id, checkpoint, task, path, nodes, view.expected)
                        return
                # The quoted messages may have other seqs by now.
                nodes = [(channel, quoting.unquoted(node)) for channel, node in nodes]
            await self._append_writes(thread, session_id, checkpoint, task, path, nodes)

    async def _append_writes(
        self,
        thread: str,
        session_id: str,
        checkpoint: str,
        task: str,
        path: str,
        nodes: Sequence[tuple[str, JSON]],
        expected: Receipt | int | None = None,
    ) -> None:
        body, record = writes_record(checkpoint, task, path, nodes, self._cache.input_of(session_id, checkpoint))
        lease = await self._runs.fence(session_id)
        try:
            receipt = await self._store.append(session_id, [record], expected_version=expected, lease=lease)
        except InvalidInput as exc:
            raise refused_by_store(thread, checkpoint, [record], exc) from exc
        self._cache.follow(receipt, _step_to(receipt, checkpoint, body))


def _still_says(view: ThreadView, seen: ThreadView) -> bool:
    """Whether the messages of an earlier view still have their seqs: puts since then only added messages."""
    if view.stored is seen.stored:
        return True
    said, before = conversation_in(view).said, conversation_in(seen).said
    return view.life == seen.life and [seq for seq, _ in said[: len(before)]] == [seq for seq, _ in before]


def _step_to(receipt: Receipt, checkpoint: str, body: Object) -> Callable[[ThreadView], ThreadView]:
    """Return the function from the view before a record of writes to the view after it."""
    seq = receipt.seqs[0]

    def step(known: ThreadView) -> ThreadView:
        more: dict[str, Any] = {}
        if known.stored is not None and known.stored.id == checkpoint:
            more["writes"] = (*known.writes, (seq, body))
        elif checkpoint not in known.passed:
            more["awaiting"] = (*known.awaiting, (checkpoint, seq, body))
        return msgspec.structs.replace(known, version=receipt.version, last_seq=seq, **more)

    return step


def _changing(put: CheckpointPut, base: StoredCheckpoint) -> list[str]:
    """Return the channels whose old values are needed: lists and messages of the base that have a new version."""
    before, versions = base.versions, put.checkpoint["channel_versions"]
    return [
        channel
        for channel, ref in base.refs.items()
        if type(ref) is dict
        and "n" in ref
        and (channel in put.new_versions or before.get(channel) != versions.get(channel))
    ]


def _may_follow(put: CheckpointPut, view: ThreadView, on_conflict: OnConflict) -> bool:
    head = view.stored.id if view.stored else None
    if put.parent == head or on_conflict == "last_wins":
        return True
    if view.stored is not None and put.id == head and put.parent == view.stored.parent:
        return True  # the same checkpoint, put again
    if put.parent is None:
        return not put.begins
    return head is not None and put.head == head  # time travel, and no put since the run read the thread


def _view_after(
    put: CheckpointPut, view: ThreadView, draft: ComposedPut, receipt: Receipt, awaiting: Awaiting
) -> ThreadView:
    is_again = view.stored is not None and view.stored.id == put.id
    passed = (*view.passed, view.stored.id) if view.stored and not is_again else view.passed
    writes = view.writes if is_again else ()
    if awaiting:
        writes += tuple([(seq, body) for name, seq, body in awaiting if name == put.id])
        awaiting = tuple(recent([each for each in awaiting if each[0] != put.id], draft.stored.seq))
    return ThreadView(
        put.session_id,
        receipt.life,
        receipt.version,
        draft.stored.seq,
        draft.stored,
        writes,
        awaiting,
        passed=passed[1 - PASSED :],
        contents=draft.contents,
    )


def _conflict(put: CheckpointPut, view: ThreadView) -> VersionConflict:
    if view.stored is None and view.version == 0:
        return VersionConflict(
            f"thread {put.thread!r} has no checkpoint {put.parent!r} to put {put.id!r} on: nothing is stored under "
            "this name. It was deleted, it expired, or the config is another store's. Begin without a checkpoint_id",
            session_id=put.session_id,
            expected=None,
            actual=0,
        )
    head = f"stands at checkpoint {view.stored.id!r}" if view.stored else "has no checkpoint any more"
    ground = f"on {put.parent!r}" if put.parent else "as its first"
    return VersionConflict(
        f"thread {put.thread!r} {head}, and checkpoint {put.id!r} was put {ground}: another run has written to the "
        "thread meanwhile. Nothing was changed. Read the state again and run again, or let the last writer win: "
        "EverturnSaver(store, on_conflict='last_wins')",
        session_id=put.session_id,
        expected=None,
        actual=view.version,
    )
