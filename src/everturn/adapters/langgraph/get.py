"""LangGraph's `get_tuple` and its relatives: checkpoints with their values and pending writes. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from everturn import Unsupported
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.langgraph.cache import ChannelContents, SeqMessages, ThreadCache
from everturn.adapters.langgraph.checkpoint_entries import is_input
from everturn.adapters.langgraph.checkpoint_log import INPUT, CheckpointLog, Object, Ref, StoredCheckpoint
from everturn.adapters.langgraph.config import SeenHeads, config_of
from everturn.adapters.langgraph.message_refs import Conversation, QuotingCodec, UnknownMessages, conversation_of
from everturn.adapters.langgraph.session_reader import TRIES, SessionMoved, SessionReader, lost
from everturn.adapters.langgraph.values import ChannelCodec
from everturn.model import JSON

WITH_SENDS = 4  # LangGraph's checkpoint format; from this one on, pending sends are a channel
_OWN = ("versions", "seen", "meta", "refs")  # fields that the adapter reads; the rest is as it was put


class FoundCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint with its values and pending writes."""

    stored: StoredCheckpoint
    head: str  # the thread's latest checkpoint at that time
    values: Mapping[str, Any]
    writes: Sequence[PendingWrite]


class PendingWrite(msgspec.Struct, frozen=True):
    """One pending write of a task."""

    checkpoint: str
    path: str
    task: str
    index: int
    channel: str
    value: Any


class ChannelTrace(msgspec.Struct, frozen=True):
    """Writes to a channel, oldest first, since checkpoint `start`, which has the channel's whole value, `seed`."""

    writes: Sequence[PendingWrite]
    start: StoredCheckpoint | None = None
    seed: Any = None


class CheckpointReads:
    """The reads of an EverturnSaver, as coroutines for a CallRunner."""

    def __init__(
        self,
        reader: SessionReader,
        codec: ChannelCodec,
        cache: ThreadCache,
        heads: SeenHeads,
        indexes: Mapping[str, int],
    ) -> None:
        """`indexes`: LangGraph's fixed indexes of the channels whose later writes replace earlier ones."""
        self._reader = reader
        self._heads = heads
        self._codec = codec
        self._cache = cache
        self._indexes = indexes

    async def get(self, thread: str, session_id: str, checkpoint: str | None = None) -> FoundCheckpoint | None:
        """Return the thread's latest checkpoint, or the one with an id; None if there is none."""
        found = await self._as_stored(thread, session_id, checkpoint)
        return None if found is None else await self._with_sends(thread, session_id, found)

    async def _as_stored(self, thread: str, session_id: str, checkpoint: str | None) -> FoundCheckpoint | None:
        """Return what `get` does, without the sends of its parent's tasks."""
        tries = TRIES
        while True:
            view = await self._reader.view(session_id)
            if view.stored is None:
                return None
            try:
                if checkpoint in (None, view.stored.id):
                    contents = await self._reader.contents(view)
                    return await self._found(thread, session_id, view.stored, view.stored, contents, view.writes)
                break
            except SessionMoved as exc:
                tries -= 1
                if not tries:
                    raise lost(session_id, view.stored.seq) from exc
                self._cache.forget(session_id)
        _, log = await self._reader.view_and_log(
            session_id, view.stored.full_seq, until=lambda log: checkpoint in log.seqs
        )
        if checkpoint is None or checkpoint not in log.seqs:
            return None
        return await self._found_in(thread, session_id, log, log.seqs[checkpoint])

    async def _with_sends(self, thread: str, session_id: str, found: FoundCheckpoint) -> FoundCheckpoint:
        """Add the sends of its parent's tasks to a checkpoint of a format before 4, as LangGraph expects."""
        stored = found.stored
        if stored.state.get("v", WITH_SENDS) >= WITH_SENDS or stored.parent is None or TASKS in found.values:
            return found
        parent = await self._as_stored(thread, session_id, stored.parent)  # not its own sends, which its parent has
        sends = [write.value for write in parent.writes if write.channel == TASKS] if parent else []
        if not sends:
            return found
        versions = stored.state["versions"]
        state = stored.state | {"versions": {**versions, TASKS: max(versions.values(), default=1)}}
        stored = msgspec.structs.replace(stored, state=state)
        return msgspec.structs.replace(found, stored=stored, values={**found.values, TASKS: sends})

    async def walk(
        self, thread: str, session_id: str, wanted: Callable[[StoredCheckpoint], bool], limit: int | None = None
    ) -> AsyncIterator[FoundCheckpoint]:
        """Yield the wanted checkpoints of a session, latest put first, as of one version."""
        matching: list[int] = []

        def is_enough(log: CheckpointLog) -> bool:
            matching[:] = [seq for seq in sorted(log.seqs.values(), reverse=True) if wanted(log.checkpoint_at(seq))]
            return limit is not None and len(matching) >= limit

        _, log = await self._reader.view_and_log(session_id, 1 if limit is None else None, until=is_enough)
        is_enough(log)
        for seq in matching[:limit]:
            yield await self._with_sends(thread, session_id, await self._found_in(thread, session_id, log, seq))

    async def history(
        self, thread: str, session_id: str, checkpoint: str | None, channels: Collection[str]
    ) -> dict[str, ChannelTrace]:
        """Return the writes to channels since each was last stored whole, up to a checkpoint.

        The checkpoint's own pending writes lead to the next one, and are not included.
        """
        traces: dict[str, ChannelTrace] = {}

        def is_enough(log: CheckpointLog) -> bool:
            seq = log.seqs.get(checkpoint) if checkpoint is not None else next(reversed(log.bodies), None)
            if seq is None:
                return False
            traces.update(self._traces(log, log.checkpoint_at(seq), channels))
            return True

        _, log = await self._reader.view_and_log(session_id, until=is_enough)
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

    def _traces(
        self, log: CheckpointLog, target: StoredCheckpoint, channels: Collection[str]
    ) -> Iterator[tuple[str, ChannelTrace]]:
        """Yield the trace of each channel. Raises NeedsEarlierEntries if the log does not reach far enough back."""
        written: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        for ancestor in log.ancestors(target):
            for write in reversed(self._writes(ancestor, log.writes_of(ancestor))):
                if write.channel in written:
                    written[write.channel].append(write)
            for channel in written.keys() & ancestor.refs.keys():
                yield channel, ChannelTrace(written.pop(channel)[::-1], ancestor)
            if not written:
                return
        for channel, writes in written.items():
            yield channel, ChannelTrace(writes[::-1])

    async def _found_in(self, thread: str, session_id: str, log: CheckpointLog, seq: int) -> FoundCheckpoint:
        def with_writes(log: CheckpointLog) -> tuple[StoredCheckpoint, list[tuple[int, Object]]]:
            stored = log.checkpoint_at(seq)
            return stored, log.writes_of(stored)

        (stored, writes), log = await self._reader.look_back(session_id, log, with_writes)
        contents = await self._filled(session_id, stored, stored.refs, log)
        return await self._found(thread, session_id, stored, log.latest or stored, contents, writes, log)

    async def _filled(
        self, session_id: str, stored: StoredCheckpoint, channels: Iterable[str], log: CheckpointLog
    ) -> ChannelContents:
        try:
            return await self._reader.fill(session_id, stored, ChannelContents(), channels, log)
        except SessionMoved:  # changed since: read all of the log's version
            log = await self._reader.earlier(session_id, log, 1)
        try:
            return await self._reader.fill(session_id, stored, ChannelContents(), channels, log)
        except SessionMoved as exc:
            raise lost(session_id, stored.seq) from exc

    async def _found(
        self,
        thread: str,
        session_id: str,
        stored: StoredCheckpoint,
        head: StoredCheckpoint,
        contents: ChannelContents,
        records: Sequence[tuple[int, Object]],
        log: CheckpointLog | None = None,
    ) -> FoundCheckpoint:
        writes = self._writes(stored, records) if records else []
        by = self._codec
        if writes or contents.nodes or contents.lists:  # values that may hold quotes
            by = QuotingCodec(self._codec, conversation_of(stored, contents))
        has_resolved = False
        while True:
            try:
                values = self._decoded(thread, stored, contents, stored.refs, by)
                return FoundCheckpoint(
                    stored, head.id, values, self._restored(thread, writes, by) if writes else writes
                )
            except UnknownMessages:  # a quote of messages that left the history
                if has_resolved:
                    raise
            nodes = [*_nodes(contents), *(write.value for write in writes)]
            by = await self._quoting(session_id, conversation_of(stored, contents), nodes, log)
            has_resolved = True

    async def _quoting(
        self, session_id: str, conversation: Conversation, nodes: Iterable[JSON], log: CheckpointLog | None
    ) -> QuotingCodec:
        """Return a codec for nodes with quotes. Quoted messages that are not in the conversation are read at once.

        Raises SessionMoved if there is no log and the session changed meanwhile.
        """
        quoting = QuotingCodec(self._codec, conversation)
        if refs := quoting.unresolved(nodes):
            for ref, said in zip(refs, await self._said(session_id, refs, log), strict=True):
                quoting.resolve(ref, said)
        return quoting

    async def _said(self, session_id: str, refs: Sequence[Ref], log: CheckpointLog | None) -> list[SeqMessages]:
        try:
            return await self._reader.all_said(session_id, refs, log)
        except SessionMoved:
            if log is None:
                raise
        log = await self._reader.earlier(session_id, log, 1)
        try:
            return await self._reader.all_said(session_id, refs, log)
        except SessionMoved as exc:
            raise lost(session_id, next(reversed(log.bodies))) from exc

    def _decoded(
        self,
        thread: str,
        stored: StoredCheckpoint,
        contents: ChannelContents,
        channels: Iterable[str],
        by: ChannelCodec,
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        refs = stored.refs
        for channel in channels:
            ref = refs[channel]
            try:
                if type(ref) is int:
                    values[channel] = by.decode(contents.nodes[channel])
                elif "is" in ref:
                    values[channel] = by.decode(ref["is"])
                elif "said" in ref:
                    values[channel] = by.to_messages(contents.said or ())
                else:
                    values[channel] = [by.decode(node) for node in contents.lists[channel]]
            except RoundTripError as exc:
                raise _unreadable(thread, stored.id, channel, exc) from exc
        return values

    def as_tuple(self, thread: str, namespace: str, found: FoundCheckpoint) -> CheckpointTuple:
        """Return a found checkpoint as LangGraph's CheckpointTuple."""
        stored = found.stored
        state = stored.state
        rest = {}
        for name, node in state.items():
            if name not in _OWN:
                rest[name] = node if type(node) is int else self._as_put(thread, stored, name, node)
        checkpoint = {
            "ts": stored.ts,
            "id": stored.id,
            "channel_values": found.values,
            "channel_versions": dict(state["versions"]),
            "versions_seen": {node: dict(seen) for node, seen in state["seen"].items()},
            "updated_channels": stored.updated,
            **rest,
        }
        return CheckpointTuple(
            config_of(thread, namespace, self._heads.note(stored.id, found.head)),
            checkpoint,  # type: ignore[arg-type]  # a TypedDict, with whatever else was put
            self.metadata(thread, stored),
            config_of(thread, namespace, self._heads.note(stored.parent, found.head)) if stored.parent else None,
            [(write.task, write.channel, write.value) for write in found.writes],
        )

    def metadata(self, thread: str, stored: StoredCheckpoint) -> CheckpointMetadata:
        """Return the metadata of a checkpoint."""
        metadata: CheckpointMetadata = self._as_put(thread, stored, "metadata", stored.state["meta"])
        return metadata

    def _as_put(self, thread: str, stored: StoredCheckpoint, name: str, node: JSON) -> Any:
        try:
            return self._codec.decode(node)
        except RoundTripError as exc:
            raise _unreadable(thread, stored.id, name, exc) from exc

    def _writes(self, stored: StoredCheckpoint, records: Sequence[tuple[int, Object]]) -> list[PendingWrite]:
        """Return the pending writes in LangGraph's order, still encoded.

        Of several writes with the same task and index the first counts; for channels in `indexes`, the last.
        """
        given = stored.values.get(INPUT)
        kept: dict[tuple[str, int], tuple[str, str, JSON]] = {}
        for _, body in records:
            for position, (channel, node) in enumerate(body["writes"]):
                index = self._indexes.get(channel, position)
                if index < 0 or (body["task"], index) not in kept:
                    kept[body["task"], index] = body["path"], channel, node
        found = []
        for (task, index), (path, channel, node) in kept.items():
            value = given[node["of"]] if is_input(node) and given else node
            found.append(PendingWrite(stored.id, path, task, index, channel, value))
        return sorted(found, key=lambda write: (write.path, write.task, write.index))

    def _restored(self, thread: str, writes: Sequence[PendingWrite], by: ChannelCodec) -> list[PendingWrite]:
        """Return the writes with their values decoded."""
        restored = []
        for write in writes:
            try:
                restored.append(msgspec.structs.replace(write, value=by.decode(write.value)))
            except RoundTripError as exc:
                raise _unreadable(thread, write.checkpoint, write.channel, exc) from exc
        return restored


def _nodes(contents: ChannelContents) -> Iterator[JSON]:
    yield from contents.nodes.values()
    yield from contents.lists.values()


def _unreadable(thread: str, checkpoint: str, channel: str, exc: Exception) -> Unsupported:
    """Make the error for a stored value that cannot be restored here."""
    return Unsupported(f"thread {thread!r}, checkpoint {checkpoint!r}, channel {channel!r}: {exc}")
