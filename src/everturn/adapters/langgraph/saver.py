"""LangGraph: `EverturnSaver(store)`, a checkpointer that keeps every checkpoint and stores what changed.

Here it is LangGraph's interface, on both faces of a store. What is behind it, from the outside in:

    _langgraph_reads, _changes, _upkeep   what is asked for, put, and removed or copied: in terms of sessions
    _langgraph_queue                      who of one run puts first
    _langgraph_reader, _views             what of a session has to be read for that, and what is known already
    _langgraph_puts, _moves               what is new in a checkpoint; what a fork or a deletion moves. Pure
    _langgraph_quotes                     messages that stand in other values, too: they are named, not written again
    _langgraph_log                        how a thread is stored. Pure
    _langgraph_values, _short, _names     values as JSON, ids and times in fewer bytes, names of sessions
    _langgraph_refusals                   errors that name the channel of what cannot be stored
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from everturn import AsyncMemoryStore, ChatMessage, InvalidInput, MemoryStore, Unsupported
from everturn.adapters._shared.sync_async import CallRunner, require
from everturn.adapters._shared.tool_results import results_after_calls

require("langgraph", (1, 2), "langgraph")
require("langgraph-checkpoint", (4, 2), "langgraph")

from langchain_core.messages import BaseMessage  # noqa: E402 - behind the check, whose message says what to do
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langgraph.checkpoint.base import (  # noqa: E402
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol  # noqa: E402

from everturn.adapters._shared.values import RoundTripError  # noqa: E402
from everturn.adapters.langgraph.cache import ThreadCache  # noqa: E402
from everturn.adapters.langgraph.checkpoint_entries import CheckpointPut  # noqa: E402
from everturn.adapters.langgraph.checkpoint_log import StoredCheckpoint  # noqa: E402
from everturn.adapters.langgraph.config import (  # noqa: E402
    SEPARATOR,
    EmptySessions,
    SeenHeads,
    address,
    config_of,
    session_of,
    setting,
    thread_of,
)
from everturn.adapters.langgraph.delete import ThreadDeletions  # noqa: E402
from everturn.adapters.langgraph.get import CheckpointReads  # noqa: E402
from everturn.adapters.langgraph.put import CheckpointPuts, OnConflict  # noqa: E402
from everturn.adapters.langgraph.session_reader import SessionReader  # noqa: E402
from everturn.adapters.langgraph.thread_lock import ThreadLock  # noqa: E402
from everturn.adapters.langgraph.values import Allow, ChannelCodec  # noqa: E402

REPLAYING = "__pregel_replay_state"  # LangGraph's word that a subgraph goes back with its parent


class EverturnSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer over an everturn store.

    Over a `MemoryStore` both the blocking and the async methods work; over an `AsyncMemoryStore` the async ones.
    A thread is the session of its name, and its messages are the session's. `on_conflict`: "raise" VersionConflict if
    another run has written to the thread meanwhile, or let the "last_wins" as other checkpointers do. `allow`: classes
    of yours that may be restored; where some were renamed since, a mapping: `{"old.module.Order": Order}`. With a
    `serde` of your own every value goes through it, and the session has no messages to read.
    """

    def __init__(
        self,
        store: MemoryStore | AsyncMemoryStore,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
        on_conflict: OnConflict = "raise",
    ) -> None:
        self._runner = CallRunner(store, "EverturnSaver")
        if on_conflict not in ("raise", "last_wins"):
            raise InvalidInput(f"is 'raise' or 'last_wins', not {on_conflict!r}", path="on_conflict")
        super().__init__(serde=serde)
        self.store = store
        self.on_conflict: OnConflict = on_conflict
        self._cache = ThreadCache()
        self._heads = SeenHeads()
        self._beginnings = EmptySessions()
        self._lock = ThreadLock(blocking=isinstance(store, MemoryStore))
        self._use(ChannelCodec(None if serde is None else self.serde, allow))

    def _use(self, values: ChannelCodec) -> None:
        self._codec = values
        self.serde = values.serde
        opened = self._runner.store
        self._reader = SessionReader(opened, values, self._cache)
        self._reads = CheckpointReads(self._reader, values, self._cache, self._heads, WRITES_IDX_MAP)
        self._puts = CheckpointPuts(opened, self._reader, values, self._cache, self._lock)
        self._deletions = ThreadDeletions(opened, self._reader, self._cache)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> EverturnSaver:
        """The same checkpointer, which may restore more classes. LangGraph calls it in its strict mode."""
        clone = copy(self)
        clone._use(self._codec.allowing(extra_allowlist))  # noqa: SLF001 - it is this class's own
        return clone

    def get_next_version(self, current: int | str | None, channel: None) -> int | str:  # type: ignore[override]  # noqa: ARG002 - LangGraph's own savers differ as well
        """Whole numbers. A thread that came from a saver with versions in text goes on with those."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}"
        return 1 if current is None else current + 1

    # --- reads -------------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest; None if there is none."""
        return await self._runner.run_async(self._get_tuple(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `aget_tuple`."""
        return self._runner.run_blocking(self._get_tuple(config))

    async def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace, checkpoint = address(config)
        session_id = session_of(thread, namespace)
        found = await self._reads.get(thread, session_id, checkpoint)
        if found is None:
            if checkpoint is None and not _is_of_a_graph(config):
                self._beginnings.seen(session_id)
            if not namespace:
                await self._deletions.finish(thread)
            return None
        return self._reads.as_tuple(thread, namespace, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints of a thread and namespace, the latest put first; where the config names none, of all, by id.

        `filter`: with these values in their metadata; `before`: whose id is smaller than the config's.
        """
        tuples = self._checkpoints(config, filter, before, limit)
        while (found := await self._runner.run_async(_next(tuples))) is not None:
            yield found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See `alist`."""
        tuples = self._checkpoints(config, filter, before, limit)
        while (found := self._runner.run_blocking(_next(tuples))) is not None:
            yield found

    async def _checkpoints(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        checkpoint = (setting(config, "checkpoint_id") or None) if config else None
        earlier = setting(before, "checkpoint_id") if before else None

        def is_wanted(thread: str, stored: StoredCheckpoint) -> bool:
            if checkpoint not in (None, stored.id) or (earlier is not None and stored.id >= earlier):
                return False
            metadata = self._reads.metadata(thread, stored) if wanted else {}
            return all(metadata.get(name) == value for name, value in (wanted or {}).items())

        async def of_session(thread: str, namespace: str, session_id: str) -> AsyncIterator[CheckpointTuple]:
            async for found in self._reads.walk(thread, session_id, lambda stored: is_wanted(thread, stored), limit):
                yield self._reads.as_tuple(thread, namespace, found)

        walks = [of_session(*named) async for named in self._sessions(config)]
        count = 0
        async for found in walks[0] if len(walks) == 1 else _by_id(walks):
            if limit is not None and count >= limit:
                return
            count += 1
            yield found

    async def _sessions(self, config: RunnableConfig | None) -> AsyncIterator[tuple[str, str, str]]:
        """Thread, namespace and session id of all that a config may mean."""
        thread = None if config is None else str(setting(config, "thread_id"))
        namespace = None if config is None else setting(config, "checkpoint_ns")
        if thread is not None and namespace is not None:
            yield thread, namespace, session_of(thread, namespace)
            return
        if thread is not None:
            yield thread, "", session_of(thread, "")
        async for session in self._reader.sessions("" if thread is None else session_of(thread, "") + SEPARATOR):
            yield *thread_of(session.session_id), session.session_id

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to channels on the way to a checkpoint, since each was last stored whole."""
        return await self._runner.run_async(self._history(config, channels))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `aget_delta_channel_history`."""
        return self._runner.run_blocking(self._history(config, channels))

    async def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        thread, namespace, checkpoint = address(config)
        traces = await self._reads.history(thread, session_of(thread, namespace), checkpoint, channels)
        histories: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            trace = traces.get(channel)
            histories[channel] = {"writes": []}
            if trace is not None:
                histories[channel]["writes"] = [(write.task, write.channel, write.value) for write in trace.writes]
                if trace.start is not None:
                    histories[channel]["seed"] = trace.seed
        return histories

    # --- puts --------------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as the child of the one that the config names: one turn, all or nothing.

        Raises VersionConflict if another run has written to the thread meanwhile (unless the last may win), and
        InvalidInput, naming thread, checkpoint and channel, if a value would not come back as it is.
        """
        return await self._runner.run_async(self._put(config, checkpoint, metadata, new_versions))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `aput`."""
        return self._runner.run_blocking(self._put(config, checkpoint, metadata, new_versions))

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, namespace, parent = address(config)
        session_id = session_of(thread, namespace)
        try:
            meta = self._codec.encode_readable(dict(get_checkpoint_metadata(config, metadata)))
        except RoundTripError as exc:
            raise InvalidInput(str(exc), path=f"thread {thread!r}, checkpoint {checkpoint['id']!r}, metadata") from exc
        put = CheckpointPut(
            thread,
            session_id,
            parent,
            self._heads.of(setting(config, "checkpoint_id")),
            parent is None and self._begins(config, session_id),
            str(checkpoint["id"]),
            _as_it_is_now(checkpoint),
            meta,
            new_versions,
        )
        await self._puts.put(put, self.on_conflict)
        return config_of(thread, namespace, self._heads.note(put.id, put.id))

    def _begins(self, config: RunnableConfig, session_id: str) -> bool:
        """Whether a checkpoint without a parent is meant to be the first: its run saw none. A subgraph that goes back
        with its parent to before its first is meant to begin again."""
        if _is_of_a_graph(config):
            self._beginnings.forget(session_id)  # who saw it empty before only looked, as graphs do
            return not setting(config, REPLAYING)
        return self._beginnings.used(session_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, for its checkpoint: one turn. What it wrote before under the same index stays, but
        errors, interrupts and the like are replaced."""
        await self._runner.run_async(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `aput_writes`."""
        self._runner.run_blocking(self._put_writes(config, writes, task_id, task_path))

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        thread, namespace, checkpoint = address(config)
        if checkpoint is None:
            raise InvalidInput("writes belong to a checkpoint: name its checkpoint_id", path="config.configurable")
        if writes:
            session_id = session_of(thread, namespace)
            await self._puts.put_writes(thread, session_id, checkpoint, task_id, task_path, writes)

    # --- deletions and copies ----------------------------------------------------------------------------------------

    async def adelete_thread(self, thread_id: str) -> None:
        """Erase a thread, then its subgraphs. An absent one is no error.

        Cut off in between, it is finished by the next call, or by the next run of a thread of this name.
        """
        await self._runner.run_async(self._deletions.delete_thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """See `adelete_thread`."""
        self._runner.run_blocking(self._deletions.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, their writes and what was said only in them: in one step for each session."""
        await self._runner.run_async(self._deletions.delete_for_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `adelete_for_runs`."""
        self._runner.run_blocking(self._deletions.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints into a new one: its subgraphs, then itself, each in one step.

        Raises InvalidInput if the new thread exists. An absent source is no error.
        """
        await self._runner.run_async(self._deletions.copy_thread(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `acopy_thread`."""
        self._runner.run_blocking(self._deletions.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all checkpoints but the latest of each namespace (and those it is rebuilt from), or "delete" all."""
        await self._runner.run_async(self._deletions.prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `aprune`."""
        self._runner.run_blocking(self._deletions.prune(thread_ids, strategy))


def to_langchain(history: Iterable[ChatMessage], *, allow: Allow = ()) -> Sequence[BaseMessage]:
    """Messages of a session as LangChain's, whoever wrote them: to begin a thread with a conversation begun elsewhere.

    One that has no id is named after its place in the session. So named, in the thread of the same name, it is not
    written again. Where another framework left several calls and then their results, each result stands behind its
    call. `allow`: classes of yours that may be restored, as for `EverturnSaver`. Raises Unsupported, naming the
    message, if one holds what is not here, or not allowed.
    """
    values = ChannelCodec(None, allow)
    found: list[BaseMessage] = []
    for message in results_after_calls(list(history)):
        try:
            found.append(values.decode_message(message))
        except RoundTripError as exc:
            text = f"message {message.seq} cannot be read: {exc}"
            raise Unsupported(f"{text} (to_langchain takes the same `allow` as EverturnSaver)") from exc
    return found


def _as_it_is_now(checkpoint: Checkpoint) -> Checkpoint:
    """LangGraph goes on with the very lists and sets that are in it, while they wait here to be stored."""
    now = checkpoint.copy()
    now["channel_values"] = values = checkpoint.get("channel_values", {}).copy()
    now["channel_versions"] = checkpoint.get("channel_versions", {})
    now["versions_seen"] = checkpoint.get("versions_seen", {})
    for channel, value in values.items():
        if isinstance(value, (list, dict, set)):
            values[channel] = value.copy() if type(value) is list else copy(value)
    return now


def _is_of_a_graph(config: RunnableConfig) -> bool:
    """Whether a run, or an update, of a graph calls. LangGraph fills this in for them, and nobody else does."""
    return "recursion_limit" in config


async def _by_id(walks: Sequence[AsyncIterator[CheckpointTuple]]) -> AsyncIterator[CheckpointTuple]:
    """The checkpoints of several sessions, by their ids, the latest first; each session's own order stays."""
    heads = [(found, walk) for walk in walks if (found := await _next(walk)) is not None]
    while heads:
        place = max(range(len(heads)), key=lambda at: str(heads[at][0].checkpoint["id"]))
        found, walk = heads[place]
        yield found
        following = await _next(walk)
        if following is None:
            del heads[place]
        else:
            heads[place] = following, walk


async def _next(tuples: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(tuples, None)


__all__ = ["EverturnSaver", "session_of", "thread_of", "to_langchain"]
