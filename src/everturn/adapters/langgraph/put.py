"""Changes of LangGraph threads: a checkpoint, or what a task wrote, is appended in one turn or not at all.

Over a blocking store the coroutines never suspend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from everturn import AsyncMemoryStore, InvalidInput, Receipt, VersionConflict
from everturn.adapters._shared.values import Unfaithful, equal
from everturn.adapters.langgraph.cache import PASSED, Awaiting, Contents, Shelf, View
from everturn.adapters.langgraph.checkpoint_log import INPUT, MESSAGES, Object, Point, recent
from everturn.adapters.langgraph.compose import Composer, Draft, Put, passes_input_on, writes_record
from everturn.adapters.langgraph.errors import refused, refused_by_store
from everturn.adapters.langgraph.message_refs import Quoting, conversation_in
from everturn.adapters.langgraph.rewrite import in_sight, unsaid
from everturn.adapters.langgraph.session_reader import TRIES, Reader, Stale, lost, unknown
from everturn.adapters.langgraph.thread_lock import Queue
from everturn.adapters.langgraph.values import Values
from everturn.model import JSON

OnConflict: TypeAlias = Literal["raise", "last_wins"]


class Changes:
    """What an EverturnSaver puts, in terms of sessions."""

    def __init__(self, store: AsyncMemoryStore, reader: Reader, values: Values, shelf: Shelf, queue: Queue) -> None:
        self._store = store
        self._reader = reader
        self._values = values
        self._shelf = shelf
        self._queue = queue

    async def put(self, put: Put, on_conflict: OnConflict) -> None:
        """Append a checkpoint in one turn. Raises VersionConflict if the thread has moved on from what the run read."""
        async with self._queue.in_front(put.session_id):
            await self._put(put, on_conflict)

    async def _put(self, put: Put, on_conflict: OnConflict) -> None:
        view = self._shelf.get(put.session_id)
        is_fresh = view is None
        if view is None:
            view = await self._reader.look(put.session_id)
        misses = 0
        while True:
            if not _may_follow(put, view, on_conflict):
                if is_fresh:
                    raise _conflict(put, view)
                view, is_fresh = await self._reader.look(put.session_id), True
                continue
            try:
                draft, receipt, awaiting = await self._append(put, view)
            except (VersionConflict, Stale) as exc:
                misses += isinstance(exc, Stale)
                if misses == TRIES and view.point is not None:
                    raise lost(put.session_id, view.point.seq) from exc
                self._shelf.forget(put.session_id)
                view, is_fresh = await self._reader.look(put.session_id), True
            else:
                self._shelf.put(_view_after(put, view, draft, receipt, awaiting))
                return

    async def _append(self, put: Put, view: View) -> tuple[Draft, Receipt, Awaiting]:
        base = view.point
        if base is not None and base.id not in (put.parent, put.id):
            return await self._append_elsewhere(put, view)
        known = view.contents
        if base is not None and unknown(known, base, base.refs):
            known = await self._reader.fill(view.session_id, base, known, _changing(put, base))
        loose = await self._reader.loose(view) if MESSAGES in put.checkpoint["channel_values"] else ()
        again = view if base is not None and base.id == put.id else None
        heard = await self._reader.heard(view.session_id, base) if again else None
        first = view.last_seq + 1
        begins = base is None and not view.loose
        composer = Composer(
            self._values, put, base, known, first=first, directly=True, loose=loose, heard=heard, begins=begins
        )
        draft = self._draft(composer, put, view.awaiting, again)
        try:
            receipt = await self._store.append(put.session_id, draft.entries, expected_version=view.expected)
        except InvalidInput as exc:
            raise refused_by_store(put.thread, put.id, draft.entries, exc) from exc
        return draft, receipt, view.awaiting

    async def _append_elsewhere(self, put: Put, view: View) -> tuple[Draft, Receipt, Awaiting]:
        """A fork: what was said since the checkpoint it is put on leaves the history, and nothing else does."""
        now, log = await self._reader.look_closely(
            put.session_id, view.point.key if view.point else None, until=lambda log: put.parent in log.seqs
        )
        if now.version != view.version or now.life != view.life:
            raise Stale
        base = log.point(log.seqs[put.parent]) if put.parent in log.seqs else None
        known = Contents()
        if base is not None:
            base, known = in_sight(base, await self._reader.fill(put.session_id, base, known, base.refs, log))
        entries, places, after = unsaid(log, base.seq if base else 0)
        first = view.last_seq + 1 + len(entries)
        heard = await self._reader.heard(put.session_id, base, log)
        loose = tuple([item for item in heard.said if item[0] not in heard.left]) if heard else ()
        begins = base is None
        composer = Composer(self._values, put, base, known, first=first, directly=False, loose=loose, begins=begins)
        awaiting = tuple([(name, places.get(seq, seq), body) for name, seq, body in view.awaiting])
        draft = self._draft(composer, put, awaiting)
        together = [*entries, *draft.entries]
        try:
            if after is None:
                receipt = await self._store.append(put.session_id, together, expected_version=view.expected)
            else:
                receipt = await self._store.replace(
                    put.session_id, together, after=after, expected_version=view.expected
                )
        except InvalidInput as exc:
            raise refused_by_store(put.thread, put.id, together, exc) from exc
        return draft, receipt, awaiting

    def _draft(self, composer: Composer, put: Put, awaiting: Awaiting, again: View | None = None) -> Draft:
        """`again`: the view of the same checkpoint, if it is put again. What was written for it stays written."""
        early = [seq for seq, _ in again.writes] if again else []
        later: list[tuple[str, int]] = []
        for name, seq, _ in awaiting:
            if name == put.id:
                early.append(seq)
            else:
                later.append((name, seq))
        draft = composer.compose(early=early, awaiting=later)
        given = draft.point.values.get(INPUT)
        if again and again.point and not equal(again.point.values.get(INPUT), given) and passes_input_on(again.writes):
            text = "was put before with another input, which what was written for it stands on; give it another id"
            raise InvalidInput(text, path=f"thread {put.thread!r}, checkpoint {put.id!r}")
        self._shelf.expect(put.session_id, put.id, draft.given)
        return draft

    async def put_writes(
        self, thread: str, session_id: str, checkpoint: str, task: str, path: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Append what a task wrote, in one turn, whatever else goes on."""
        seen = self._shelf.get(session_id)
        quoting = Quoting(self._values, conversation_in(seen))
        nodes = []
        for channel, value in writes:
            try:
                nodes.append((channel, quoting.encode(value)))
            except Unfaithful as exc:
                raise refused(thread, checkpoint, channel, exc) from exc
        async with self._queue.in_front(session_id):
            if quoting.has_quoted:
                view = self._shelf.get(session_id)
                if view is not None and seen is not None and _still_says(view, seen):
                    with suppress(VersionConflict):
                        await self._append_writes(thread, session_id, checkpoint, task, path, nodes, view.expected)
                        return
                # The messages may have other seqs by now than those they were quoted by.
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
        body, record = writes_record(checkpoint, task, path, nodes, self._shelf.input_of(session_id, checkpoint))
        try:
            receipt = await self._store.append(session_id, [record], expected_version=expected)
        except InvalidInput as exc:
            raise refused_by_store(thread, checkpoint, [record], exc) from exc
        self._shelf.follow(receipt, _step_to(receipt, checkpoint, body))


def _still_says(view: View, seen: View) -> bool:
    """Whether messages have the seqs they had: nothing was put since, or what was put only added to them."""
    if view.point is seen.point:
        return True
    said, before = conversation_in(view).said, conversation_in(seen).said
    return view.life == seen.life and [seq for seq, _ in said[: len(before)]] == [seq for seq, _ in before]


def _step_to(receipt: Receipt, checkpoint: str, body: Object) -> Callable[[View], View]:
    """From the view before a record of writes to the one after it."""
    seq = receipt.seqs[0]

    def step(known: View) -> View:
        more: dict[str, Any] = {}
        if known.point is not None and known.point.id == checkpoint:
            more["writes"] = (*known.writes, (seq, body))
        elif checkpoint not in known.passed:
            more["awaiting"] = (*known.awaiting, (checkpoint, seq, body))
        return msgspec.structs.replace(known, version=receipt.version, last_seq=seq, **more)

    return step


def _changing(put: Put, base: Point) -> list[str]:
    """The channels of the base that will have to be compared: those that grow, and have."""
    before, versions = base.versions, put.checkpoint["channel_versions"]
    return [
        channel
        for channel, ref in base.refs.items()
        if type(ref) is dict
        and "n" in ref
        and (channel in put.new_versions or before.get(channel) != versions.get(channel))
    ]


def _may_follow(put: Put, view: View, on_conflict: OnConflict) -> bool:
    head = view.point.id if view.point else None
    if put.parent == head or on_conflict == "last_wins":
        return True
    if view.point is not None and put.id == head and put.parent == view.point.parent:
        return True  # put again
    if put.parent is None:
        return not put.begins
    return head is not None and put.head == head  # nothing has happened since it chose to go back


def _view_after(put: Put, view: View, draft: Draft, receipt: Receipt, awaiting: Awaiting) -> View:
    is_again = view.point is not None and view.point.id == put.id
    passed = (*view.passed, view.point.id) if view.point and not is_again else view.passed
    writes = view.writes if is_again else ()
    if awaiting:
        writes += tuple([(seq, body) for name, seq, body in awaiting if name == put.id])
        awaiting = tuple(recent([each for each in awaiting if each[0] != put.id], draft.point.seq))
    return View(
        put.session_id,
        receipt.life,
        receipt.version,
        draft.point.seq,
        draft.point,
        writes,
        awaiting,
        passed=passed[1 - PASSED :],
        contents=draft.contents,
    )


def _conflict(put: Put, view: View) -> VersionConflict:
    if view.point is None and view.version == 0:
        return VersionConflict(
            f"thread {put.thread!r} has no checkpoint {put.parent!r} to put {put.id!r} on: nothing is stored under "
            "this name. It was deleted, it expired, or the config is another store's. Begin without a checkpoint_id",
            session_id=put.session_id,
            expected=None,
            actual=0,
        )
    head = f"stands at checkpoint {view.point.id!r}" if view.point else "has no checkpoint any more"
    ground = f"on {put.parent!r}" if put.parent else "as its first"
    return VersionConflict(
        f"thread {put.thread!r} {head}, and checkpoint {put.id!r} was put {ground}: another run has written to the "
        "thread meanwhile. Nothing was changed. Read the state again and run again, or let the last writer win: "
        "EverturnSaver(store, on_conflict='last_wins')",
        session_id=put.session_id,
        expected=None,
        actual=view.version,
    )
