"""Reads of LangGraph threads: a checkpoint with its values and its pending writes, one or many. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from everturn import Unsupported
from everturn.adapters._shared.values import Unfaithful
from everturn.adapters.langgraph.cache import Contents, Said, Shelf
from everturn.adapters.langgraph.checkpoint_log import INPUT, Log, Object, Point, Ref
from everturn.adapters.langgraph.compose import is_input
from everturn.adapters.langgraph.config import Heads, config_of
from everturn.adapters.langgraph.message_refs import Conversation, NotSaid, Quoting, conversation_of
from everturn.adapters.langgraph.session_reader import TRIES, Reader, Stale, lost
from everturn.adapters.langgraph.values import Values
from everturn.model import JSON

WITH_SENDS = 4  # the format from which on pending sends are a channel of the checkpoint itself
_OWN = ("versions", "seen", "meta", "refs")  # of a stored checkpoint; the rest of its state is as it was put


class Found(msgspec.Struct, frozen=True):
    """A checkpoint with all that belongs to it."""

    point: Point
    head: str  # the checkpoint the thread stood at then
    values: Mapping[str, Any]
    writes: Sequence[Write]


class Write(msgspec.Struct, frozen=True):
    """One pending write."""

    checkpoint: str
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


class Reads:
    """What an EverturnSaver reads, in terms of sessions."""

    def __init__(self, reader: Reader, values: Values, shelf: Shelf, heads: Heads, indexes: Mapping[str, int]) -> None:
        """`indexes`: of the channels whose writes replace each other."""
        self._reader = reader
        self._heads = heads
        self._values = values
        self._shelf = shelf
        self._indexes = indexes

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
                    found = await self._found(thread, session_id, view.point, view.point, contents, view.writes)
                    return await self._with_sends(thread, session_id, found)
                break
            except Stale as exc:
                tries -= 1
                if not tries:
                    raise lost(session_id, view.point.seq) from exc
                self._shelf.forget(session_id)
        _, log = await self._reader.look_closely(session_id, view.point.key, until=lambda log: checkpoint in log.seqs)
        if checkpoint is None or checkpoint not in log.seqs:
            return None
        found = await self._found_in(thread, session_id, log, log.seqs[checkpoint])
        return await self._with_sends(thread, session_id, found)

    async def _with_sends(self, thread: str, session_id: str, found: Found) -> Found:
        """Add the sends that its parent's tasks wrote to a checkpoint of LangGraph before its format 4."""
        point = found.point
        if point.state.get("v", WITH_SENDS) >= WITH_SENDS or point.parent is None or TASKS in found.values:
            return found
        parent = await self.get(thread, session_id, point.parent)
        sends = [write.value for write in parent.writes if write.channel == TASKS] if parent else []
        if not sends:
            return found
        versions = point.state["versions"]
        state = point.state | {"versions": {**versions, TASKS: max(versions.values(), default=1)}}
        point = msgspec.structs.replace(point, state=state)
        return msgspec.structs.replace(found, point=point, values={**found.values, TASKS: sends})

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
            yield await self._with_sends(thread, session_id, await self._found_in(thread, session_id, log, seq))

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
            traces.update(self._traces(log, log.point(seq), channels))
            return True

        _, log = await self._reader.look_closely(session_id, until=is_enough)
        is_enough(log)
        for channel, trace in traces.items():
            nodes = [write.value for write in trace.writes]
            by = await self._quoting(session_id, Conversation(), nodes, log)
            traces[channel] = msgspec.structs.replace(trace, writes=self._restored(thread, trace.writes, by))
            if trace.start is not None:
                contents = await self._filled(session_id, trace.start, [channel], log)
                by = await self._quoting(session_id, Conversation(), _nodes(contents), log)
                seed = self._decoded(thread, trace.start, contents, [channel], by)[channel]
                traces[channel] = msgspec.structs.replace(traces[channel], seed=seed)
        return traces

    def _traces(self, log: Log, target: Point, channels: Collection[str]) -> Iterator[tuple[str, Trace]]:
        """Raises Missing if the log does not reach far enough."""
        written: dict[str, list[Write]] = {channel: [] for channel in channels}
        for ancestor in log.ancestors(target):
            for write in reversed(self._writes(ancestor, log.writes_of(ancestor))):
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
        return await self._found(thread, session_id, point, log.latest or point, contents, writes, log)

    async def _filled(self, session_id: str, point: Point, channels: Iterable[str], log: Log) -> Contents:
        try:
            return await self._reader.fill(session_id, point, Contents(), channels, log)
        except Stale:  # moved since: then all as it was in the log's version
            log = await self._reader.earlier(session_id, log, 1)
        try:
            return await self._reader.fill(session_id, point, Contents(), channels, log)
        except Stale as exc:
            raise lost(session_id, point.seq) from exc

    async def _found(
        self,
        thread: str,
        session_id: str,
        point: Point,
        head: Point,
        contents: Contents,
        records: Sequence[tuple[int, Object]],
        log: Log | None = None,
    ) -> Found:
        writes = self._writes(point, records) if records else []
        by = self._values
        if writes or contents.nodes or contents.lists:  # what may quote
            by = Quoting(self._values, conversation_of(point, contents))
        has_heard = False
        while True:
            try:
                values = self._decoded(thread, point, contents, point.refs, by)
                return Found(point, head.id, values, self._restored(thread, writes, by) if writes else writes)
            except NotSaid:  # something quotes what is no longer said
                if has_heard:
                    raise
            nodes = [*_nodes(contents), *(write.value for write in writes)]
            by = await self._quoting(session_id, conversation_of(point, contents), nodes, log)
            has_heard = True

    async def _quoting(
        self, session_id: str, conversation: Conversation, nodes: Iterable[JSON], log: Log | None
    ) -> Quoting:
        """What decodes nodes that quote a conversation, or more than that: all of it is read at once. Raises Stale if
        there is no log, and the session moved meanwhile."""
        quoting = Quoting(self._values, conversation)
        if refs := quoting.unheard(nodes):
            for ref, said in zip(refs, await self._said(session_id, refs, log), strict=True):
                quoting.hear(ref, said)
        return quoting

    async def _said(self, session_id: str, refs: Sequence[Ref], log: Log | None) -> list[Said]:
        try:
            return await self._reader.all_said(session_id, refs, log)
        except Stale:
            if log is None:
                raise
        log = await self._reader.earlier(session_id, log, 1)
        try:
            return await self._reader.all_said(session_id, refs, log)
        except Stale as exc:
            raise lost(session_id, next(reversed(log.bodies))) from exc

    def _decoded(
        self, thread: str, point: Point, contents: Contents, channels: Iterable[str], by: Values
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        refs = point.refs
        for channel in channels:
            ref = refs[channel]
            try:
                if type(ref) is int:
                    values[channel] = by.decode(contents.nodes[channel])
                elif "is" in ref:
                    values[channel] = by.decode(ref["is"])
                elif "said" in ref:
                    values[channel] = by.thawed_all(contents.said or ())
                else:
                    values[channel] = [by.decode(node) for node in contents.lists[channel]]
            except Unfaithful as exc:
                raise _unreadable(thread, point.id, channel, exc) from exc
        return values

    def as_tuple(self, thread: str, namespace: str, found: Found) -> CheckpointTuple:
        """What was found, as LangGraph hands it round."""
        point = found.point
        state = point.state
        rest = {}
        for name, node in state.items():
            if name not in _OWN:
                rest[name] = node if type(node) is int else self._as_put(thread, point, name, node)
        checkpoint = {
            "ts": point.ts,
            "id": point.id,
            "channel_values": found.values,
            "channel_versions": dict(state["versions"]),
            "versions_seen": {node: dict(seen) for node, seen in state["seen"].items()},
            "updated_channels": point.updated,
            **rest,
        }
        return CheckpointTuple(
            config_of(thread, namespace, self._heads.noted(point.id, found.head)),
            checkpoint,  # type: ignore[arg-type]  # a TypedDict, with whatever else was put
            self.metadata(thread, point),
            config_of(thread, namespace, self._heads.noted(point.parent, found.head)) if point.parent else None,
            [(write.task, write.channel, write.value) for write in found.writes],
        )

    def metadata(self, thread: str, point: Point) -> CheckpointMetadata:
        """The metadata of a checkpoint."""
        metadata: CheckpointMetadata = self._as_put(thread, point, "metadata", point.state["meta"])
        return metadata

    def _as_put(self, thread: str, point: Point, name: str, node: JSON) -> Any:
        try:
            return self._values.decode(node)
        except Unfaithful as exc:
            raise _unreadable(thread, point.id, name, exc) from exc

    def _writes(self, point: Point, records: Sequence[tuple[int, Object]]) -> list[Write]:
        """In order, as they are stored. Of the same task and index the first counts, but of those that replace each
        other the last."""
        given = point.values.get(INPUT)
        kept: dict[tuple[str, int], tuple[str, str, JSON]] = {}
        for _, body in records:
            for position, (channel, node) in enumerate(body["writes"]):
                index = self._indexes.get(channel, position)
                if index < 0 or (body["task"], index) not in kept:
                    kept[body["task"], index] = body["path"], channel, node
        found = []
        for (task, index), (path, channel, node) in kept.items():
            value = given[node["of"]] if is_input(node) and given else node
            found.append(Write(point.id, path, task, index, channel, value))
        return sorted(found, key=lambda write: (write.path, write.task, write.index))

    def _restored(self, thread: str, writes: Sequence[Write], by: Values) -> list[Write]:
        """The same, with their values."""
        restored = []
        for write in writes:
            try:
                restored.append(msgspec.structs.replace(write, value=by.decode(write.value)))
            except Unfaithful as exc:
                raise _unreadable(thread, write.checkpoint, write.channel, exc) from exc
        return restored


def _nodes(contents: Contents) -> Iterator[JSON]:
    yield from contents.nodes.values()
    yield from contents.lists.values()


def _unreadable(thread: str, checkpoint: str, channel: str, exc: Exception) -> Unsupported:
    """The error for a value that is stored and cannot be made here."""
    return Unsupported(f"thread {thread!r}, checkpoint {checkpoint!r}, channel {channel!r}: {exc}")
