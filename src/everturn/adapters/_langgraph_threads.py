"""The threads of LangGraph in a store: reads and changes of whole sessions, written once for both faces.

Over a blocking store the coroutines never suspend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from everturn import InvalidInput, Receipt, Record, SessionInfo, Unsupported, VersionConflict
from everturn.adapters._langgraph_log import MESSAGES, Log, Object, Point
from everturn.adapters._langgraph_puts import (
    INPUT,
    Composer,
    Draft,
    Put,
    in_sight,
    left_behind,
    refused,
    without,
    writes_record,
)
from everturn.adapters._langgraph_values import Values
from everturn.adapters._langgraph_views import TRIES, Awaiting, Call, Contents, Reader, Shelf, Stale, View, lost
from everturn.adapters._reclaiming import reclaim
from everturn.adapters._values import Unfaithful
from everturn.model import JSON, Entry

OnConflict: TypeAlias = Literal["raise", "last_wins"]


class Found(msgspec.Struct, frozen=True):
    """A checkpoint with all that belongs to it."""

    point: Point
    head: str  # the checkpoint the thread stood at then
    values: Mapping[str, Any]
    writes: Sequence[Write]


class Write(msgspec.Struct, frozen=True):
    """One pending write."""

    path: str
    task: str
    index: int
    channel: str
    value: Any


class Trace(msgspec.Struct, frozen=True):
    """Writes to a channel, oldest first, since the checkpoint `start` stored it whole: as `seed`."""

    writes: Sequence[Write]
    start: Point | None = None
    seed: Any = None


class Threads:
    """What an EverturnSaver does, in terms of sessions."""

    def __init__(self, call: Call, values: Values, shelf: Shelf, indexes: Mapping[str, int]) -> None:
        """`indexes`: of the channels whose writes replace each other."""
        self._call = call
        self._values = values
        self._shelf = shelf
        self._indexes = indexes
        self._reader = Reader(call, values, shelf)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def get(self, thread: str, session_id: str, checkpoint: str | None = None) -> Found | None:
        """A checkpoint: the one the thread stands at, or that of an id. None if there is none."""
        tries = TRIES
        while True:
            view = await self._reader.look(session_id)
            if view.point is None:
                return None
            try:
                if checkpoint in (None, view.point.id):
                    contents = await self._reader.contents(view)
                    return self._found(thread, view.point, view.point, contents, view.writes)
                break
            except Stale as exc:
                tries -= 1
                if not tries:
                    raise lost(session_id, view.point.seq) from exc
                self._shelf.forget(session_id)
        _, log = await self._reader.look_closely(session_id, view.point.key, until=lambda log: checkpoint in log.seqs)
        if checkpoint is None or checkpoint not in log.seqs:
            return None
        return await self._found_in(thread, session_id, log, log.seqs[checkpoint])

    async def walk(
        self, thread: str, session_id: str, wanted: Callable[[Point], bool], limit: int | None = None
    ) -> AsyncIterator[Found]:
        """The checkpoints that are wanted, the latest first, as they were at one moment."""
        matching: list[int] = []

        def is_enough(log: Log) -> bool:
            matching[:] = [seq for seq in sorted(log.seqs.values(), reverse=True) if wanted(log.point(seq))]
            return limit is not None and len(matching) >= limit

        _, log = await self._reader.look_closely(session_id, 1 if limit is None else None, until=is_enough)
        is_enough(log)
        for seq in matching[:limit]:
            yield await self._found_in(thread, session_id, log, seq)

    async def history(
        self, thread: str, session_id: str, checkpoint: str | None, channels: Collection[str]
    ) -> dict[str, Trace]:
        """What was written to channels since they were last stored whole. The checkpoint's own writes lead to the next,
        and are not part of it."""
        traces: dict[str, Trace] = {}

        def is_enough(log: Log) -> bool:
            seq = log.seqs.get(checkpoint) if checkpoint is not None else next(reversed(log.bodies), None)
            if seq is None:
                return False
            traces.update(self._traces(thread, log, log.point(seq), channels))
            return True

        _, log = await self._reader.look_closely(session_id, until=is_enough)
        is_enough(log)
        for channel, trace in traces.items():
            if trace.start is not None:
                contents = await self._filled(session_id, trace.start, [channel], log)
                seed = self._decoded(thread, trace.start, contents, [channel])[channel]
                traces[channel] = msgspec.structs.replace(trace, seed=seed)
        return traces

    def _traces(self, thread: str, log: Log, target: Point, channels: Collection[str]) -> Iterator[tuple[str, Trace]]:
        """Raises Missing if the log does not reach far enough."""
        written: dict[str, list[Write]] = {channel: [] for channel in channels}
        for ancestor in log.ancestors(target):
            for write in reversed(self._writes(thread, ancestor, log.writes_of(ancestor))):
                if write.channel in written:
                    written[write.channel].append(write)
            for channel in written.keys() & ancestor.refs.keys():
                yield channel, Trace(written.pop(channel)[::-1], ancestor)
            if not written:
                return
        for channel, writes in written.items():
            yield channel, Trace(writes[::-1])

    async def _found_in(self, thread: str, session_id: str, log: Log, seq: int) -> Found:
        def with_writes(log: Log) -> tuple[Point, list[tuple[int, Object]]]:
            point = log.point(seq)
            return point, log.writes_of(point)

        (point, writes), log = await self._reader.reaching(session_id, log, with_writes)
        contents = await self._filled(session_id, point, point.refs, log)
        return self._found(thread, point, log.latest or point, contents, writes)

    async def _filled(self, session_id: str, point: Point, channels: Iterable[str], log: Log) -> Contents:
        try:
            return await self._reader.fill(session_id, point, Contents(), channels, log)
        except Stale:  # moved since: then all as it was in the log's version
            log = await self._reader.earlier(session_id, log, 1)
        try:
            return await self._reader.fill(session_id, point, Contents(), channels, log)
        except Stale as exc:
            raise lost(session_id, point.seq) from exc

    def _found(
        self, thread: str, point: Point, head: Point, contents: Contents, writes: Sequence[tuple[int, Object]]
    ) -> Found:
        values = self._decoded(thread, point, contents, point.refs)
        return Found(point, head.id, values, self._writes(thread, point, writes))

    def _decoded(self, thread: str, point: Point, contents: Contents, channels: Iterable[str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for channel in channels:
            ref = point.refs[channel]
            try:
                if isinstance(ref, int):
                    values[channel] = self._values.decode(contents.nodes[channel])
                elif "is" in ref:
                    values[channel] = self._values.decode(ref["is"])
                elif "said" in ref:
                    values[channel] = [self._values.thawed(kept) for _, kept in contents.said or ()]
                else:
                    values[channel] = [self._values.decode(node) for node in contents.lists[channel]]
            except Unfaithful as exc:
                raise unreadable(thread, point.id, channel, exc) from exc
        return values

    def _writes(self, thread: str, point: Point, records: Sequence[tuple[int, Object]]) -> list[Write]:
        """In order. Of the same task and index the first counts, but of those that replace each other the last."""
        given = point.values.get(INPUT)
        kept: dict[tuple[str, int], tuple[str, str, JSON]] = {}
        for _, body in records:
            for position, (channel, node) in enumerate(body["writes"]):
                index = self._indexes.get(channel, position)
                if index < 0 or (body["task"], index) not in kept:
                    kept[body["task"], index] = body["path"], channel, node
        found = []
        for (task, index), (path, channel, node) in kept.items():
            is_passed_on = type(node) is dict and node.get("!") == "input"
            try:
                value = self._values.decode(given[node["of"]] if is_passed_on and given else node)
            except Unfaithful as exc:
                raise unreadable(thread, point.id, channel, exc) from exc
            found.append(Write(path, task, index, channel, value))
        return sorted(found, key=lambda write: (write.path, write.task, write.index))

    # --- puts --------------------------------------------------------------------------------------------------------

    async def put(self, put: Put, on_conflict: OnConflict) -> None:
        """Append a checkpoint in one turn. Raises VersionConflict if the thread has moved on from what the run read."""
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
            except InvalidInput as exc:
                raise _named(put.thread, put.id, exc) from exc
            else:
                self._shelf.put(_view_after(put, draft, receipt, awaiting))
                return

    async def _append(self, put: Put, view: View) -> tuple[Draft, Receipt, Awaiting]:
        base = view.point
        if base is not None and base.id not in (put.parent, put.id):
            return await self._append_elsewhere(put, view)
        known = view.contents
        if base is not None:
            known = await self._reader.fill(view.session_id, base, known, _changing(put, base))
        loose = await self._reader.loose(view) if MESSAGES in put.checkpoint["channel_values"] else ()
        composer = Composer(self._values, put, base, known, first=view.last_seq + 1, directly=True, loose=loose)
        draft = self._draft(composer, put, view.awaiting)
        receipt = await self._call("append", put.session_id, draft.entries, expected_version=view.expected)
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
        entries, places, after = _unsaid(log, base.seq if base else 0)
        first = view.last_seq + 1 + len(entries)
        composer = Composer(self._values, put, base, known, first=first, directly=False)
        awaiting = tuple([(name, places.get(seq, seq), body) for name, seq, body in view.awaiting])
        draft = self._draft(composer, put, awaiting)
        together = [*entries, *draft.entries]
        if after is None:
            receipt = await self._call("append", put.session_id, together, expected_version=view.expected)
        else:
            receipt = await self._call("replace", put.session_id, together, after=after, expected_version=view.expected)
        return draft, receipt, awaiting

    def _draft(self, composer: Composer, put: Put, awaiting: Awaiting) -> Draft:
        draft = composer.compose(
            early=[seq for name, seq, _ in awaiting if name == put.id],
            awaiting=[(name, seq) for name, seq, _ in awaiting if name != put.id],
        )
        if (given := draft.point.values.get(INPUT)) is not None:
            self._shelf.expect(put.id, given)
        return draft

    async def put_writes(
        self, thread: str, session_id: str, checkpoint: str, task: str, path: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Append what a task wrote, in one turn, whatever else goes on."""
        nodes = []
        for channel, value in writes:
            try:
                nodes.append((channel, self._values.encode(value)))
            except Unfaithful as exc:
                raise refused(thread, checkpoint, channel, exc) from exc
        body, record = writes_record(checkpoint, task, path, nodes, self._shelf.input_of(checkpoint))
        try:
            receipt: Receipt = await self._call("append", session_id, [record])
        except InvalidInput as exc:
            raise _named(thread, checkpoint, exc) from exc
        seq = receipt.seqs[0]

        def step(known: View) -> View:
            if known.point is not None and known.point.id == checkpoint:
                more: dict[str, Any] = {"writes": (*known.writes, (seq, body))}
            else:
                more = {"awaiting": (*known.awaiting, (checkpoint, seq, body))}
            return msgspec.structs.replace(known, version=receipt.version, last_seq=seq, **more)

        self._shelf.follow(receipt, step)

    # --- deletions ---------------------------------------------------------------------------------------------------

    async def keep_only(self, session_id: str, choose: Callable[[Log], frozenset[str] | None]) -> None:
        """Remove checkpoints, and all that only they need, in one step. `choose` says which stay; None: all do."""
        while True:
            log = await self._reader.log(session_id)
            keep = choose(log)
            if keep is None:
                return
            self._shelf.forget(session_id)
            entries = without(log, keep)
            if not entries:
                await self._call("erase", session_id)
                return
            expected = Receipt(session_id, log.life, log.version)
            try:
                receipt = await self._call("replace", session_id, entries, after=0, expected_version=expected)
            except VersionConflict:
                continue
            await reclaim(self._call, receipt, after=receipt.seqs[-1], mark=_MARK)
            return

    async def erase(self, session_ids: Collection[str]) -> None:
        """Physically remove sessions, in this order."""
        for session_id in session_ids:
            self._shelf.forget(session_id)
            await self._call("erase", session_id)

    async def copy(self, session_id: str, new_session_id: str) -> None:
        """Copy a session into a new one, which appears in one step."""
        await self._call("fork", session_id, new_session_id)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def sessions(self, prefix: str) -> AsyncIterator[SessionInfo]:
        """All sessions whose id begins so."""
        page = None
        while True:
            found = await self._call("sessions", prefix, limit=500, page=page)
            for session in found.sessions:
                yield session
            if (page := found.next) is None:
                return

    async def mentioning(self, texts: Sequence[str]) -> list[str]:
        """The sessions in which one of the texts may stand."""
        try:
            found = [match for text in texts for match in await self._call("find", text, limit=2**31)]
        except (Unsupported, InvalidInput):
            return [session.session_id async for session in self.sessions("")]
        return list(dict.fromkeys(match.session_id for match in found))


def _changing(put: Put, base: Point) -> list[str]:
    """The channels of the base that will have to be compared: those that grow, and have."""
    versions = put.checkpoint["channel_versions"]
    return [
        channel
        for channel, ref in base.refs.items()
        if isinstance(ref, dict)
        and "n" in ref
        and (channel in put.new_versions or base.versions.get(channel) != versions.get(channel))
    ]


def _unsaid(log: Log, base: int) -> tuple[list[Entry], Mapping[int, int], int | None]:
    """What has to be written again so that nothing said behind the base is in the history, and behind which seq."""
    first = next((seq for seq in log.said if seq > base), None)
    if first is None:
        return [], {}, None
    after = max((entry.seq or 0 for entry in log.entries if (entry.seq or 0) < first), default=0)
    return *left_behind(log, after), after


def _may_follow(put: Put, view: View, on_conflict: OnConflict) -> bool:
    head = view.point.id if view.point else None
    if put.parent == head or on_conflict == "last_wins":
        return True
    if view.point is not None and put.id == head and put.parent == view.point.parent:
        return True  # put again
    if put.parent is None:
        return not put.begins
    return head is not None and put.head == head  # nothing has happened since it chose to go back


def _view_after(put: Put, draft: Draft, receipt: Receipt, awaiting: Awaiting) -> View:
    return View(
        put.session_id,
        receipt.life,
        receipt.version,
        draft.point.seq,
        draft.point,
        tuple((seq, body) for name, seq, body in awaiting if name == put.id),
        tuple(each for each in awaiting if each[0] != put.id),
        contents=draft.contents,
    )


def _conflict(put: Put, view: View) -> VersionConflict:
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


def _named(thread: str, checkpoint: str, exc: InvalidInput) -> InvalidInput:
    """The store's own refusal (too long, too deep), with whose value it was."""
    if exc.path.startswith("thread "):
        return exc
    return InvalidInput(str(exc).partition(": ")[2], path=f"thread {thread!r}, checkpoint {checkpoint!r}, {exc.path}")


def unreadable(thread: str, checkpoint: str, channel: str, exc: Exception) -> Unsupported:
    """The error for a value that is stored and cannot be made here."""
    return Unsupported(f"thread {thread!r}, checkpoint {checkpoint!r}, channel {channel!r}: {exc}")


_MARK = Record("lg.mark", None)
