"""EverturnSaver: LangGraph's checkpointer interface.

Each method checks its config and calls the module of its name: get.py, listing.py, put.py, delete.py.
Methods that exist twice (`get_tuple`, `aget_tuple`) share one coroutine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore
from everturn.adapters._shared.sync_async import CallRunner
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.langgraph.cache import ThreadCache
from everturn.adapters.langgraph.checkpoint_entries import CheckpointPut
from everturn.adapters.langgraph.config import (
    EmptySessions,
    SeenHeads,
    address,
    config_of,
    session_of,
    setting,
)
from everturn.adapters.langgraph.delete import ThreadDeletions
from everturn.adapters.langgraph.get import CheckpointReads
from everturn.adapters.langgraph.listing import CheckpointListing, next_of
from everturn.adapters.langgraph.put import CheckpointPuts, OnConflict
from everturn.adapters.langgraph.session_reader import SessionReader
from everturn.adapters.langgraph.thread_lock import ThreadLock
from everturn.adapters.langgraph.thread_run import LeasedRuns, ThreadRun
from everturn.adapters.langgraph.values import Allow, ChannelCodec

REPLAYING = "__pregel_replay_state"  # key in the config of a subgraph that goes back with its parent


class EverturnSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer over an everturn store. A thread is the session of its name, with its messages.

    Over a `MemoryStore` both the blocking and the async methods work; over an `AsyncMemoryStore` the async ones.
    `on_conflict`: "raise" VersionConflict if another run has written to the thread meanwhile, or "last_wins", as with
    other checkpointers. `allow`: classes of yours that may be restored; for renamed ones a mapping:
    `{"old.module.Order": Order}`. With your own `serde` every value goes through it, and the session has no messages
    that people or other adapters can read.
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
        self._runs = LeasedRuns()
        self._use(ChannelCodec(None if serde is None else self.serde, allow))

    def _use(self, codec: ChannelCodec) -> None:
        self._codec = codec
        self.serde = codec.serde
        opened = self._runner.store
        self._reader = SessionReader(opened, codec, self._cache)
        self._reads = CheckpointReads(self._reader, codec, self._cache, self._heads, WRITES_IDX_MAP)
        self._listing = CheckpointListing(self._reader, self._reads)
        self._puts = CheckpointPuts(opened, self._reader, codec, self._cache, self._lock, self._runs)
        self._deletions = ThreadDeletions(opened, self._reader, self._cache)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> EverturnSaver:
        """Return a copy of the checkpointer that may restore more classes. LangGraph calls it in its strict mode."""
        clone = copy(self)
        clone._use(self._codec.allowing(extra_allowlist))  # noqa: SLF001 - it is this class's own
        return clone

    def get_next_version(self, current: int | str | None, channel: None) -> int | str:  # type: ignore[override]  # noqa: ARG002 - LangGraph's own savers differ as well
        """Return the next version: a whole number; text for a thread that another saver began with versions in text."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}"
        return 1 if current is None else current + 1

    def run(self, thread_id: str, *, seconds: float = 30, wait: float = 0) -> ThreadRun:
        """Take the lease of a thread for a run: `with saver.run("a"): graph.invoke(...)`, or `async with`.

        Of any number of processes that enter, one is inside at a time. The others wait up to `wait` seconds, then they
        get LeaseHeld. The lease is renewed in the background, and released at the end of the block; if its process
        dies, it is free after `seconds`. Every put of this saver into the thread names it: once it is lost, they raise
        LeaseLost and write nothing. A lease is not a check of the state: after a wait, look whether the run is still
        to be done. Entering returns the lease, to pass to `store.once`.
        """
        return ThreadRun(self._runner, self._runs, thread_id, seconds=seconds, wait=wait)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the latest; None if there is none."""
        return await self._runner.run_async(self._get_tuple(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, as `aget_tuple` does."""
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
        """Yield the checkpoints of a thread and namespace, latest put first; without a config, all, greatest id first.

        `filter`: values that their metadata must have. `before`: only ids smaller than this config's.
        """
        tuples = self._listing.checkpoints(config, filter, before, limit)
        while (found := await self._runner.run_async(next_of(tuples))) is not None:
            yield found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, as `alist` does."""
        tuples = self._listing.checkpoints(config, filter, before, limit)
        while (found := self._runner.run_blocking(next_of(tuples))) is not None:
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels on the way to a checkpoint, since each channel was last stored whole."""
        return await self._runner.run_async(self._history(config, channels))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels, as `aget_delta_channel_history` does."""
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
        """Store a checkpoint as the child of the one that the config names, in one turn: all or nothing.

        Raises VersionConflict if another run has written to the thread meanwhile (unless `on_conflict` is
        "last_wins"), and InvalidInput, naming thread, checkpoint and channel, if a value would not come back equal.
        """
        return await self._runner.run_async(self._put(config, checkpoint, metadata, new_versions))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as `aput` does."""
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
        """Whether a checkpoint without a parent is meant to be the thread's first: its run saw an empty thread.

        A subgraph that goes back with its parent to before its first checkpoint begins again, and is not refused.
        """
        if _is_of_a_graph(config):
            self._beginnings.forget(session_id)  # a graph's earlier read was not this run's
            return not setting(config, REPLAYING)
        return self._beginnings.used(session_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task for its checkpoint, in one turn.

        An earlier write of the task with the same index stays. Errors, interrupts and the like are replaced.
        """
        await self._runner.run_async(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, as `aput_writes` does."""
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
        """Erase a thread, then its subgraphs. An absent thread is no error.

        If it is interrupted in between, the next call, or the next run of a thread of this name, finishes it.
        """
        await self._runner.run_async(self._deletions.delete_thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread, as `adelete_thread` does."""
        self._runner.run_blocking(self._deletions.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, with writes and messages that only they have: one step for each session."""
        await self._runner.run_async(self._deletions.delete_for_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, as `adelete_for_runs` does."""
        self._runner.run_blocking(self._deletions.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints to a new one: first its subgraphs, then itself, each in one step.

        Raises InvalidInput if the new thread exists. An absent source is no error.
        """
        await self._runner.run_async(self._deletions.copy_thread(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, as `acopy_thread` does."""
        self._runner.run_blocking(self._deletions.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all checkpoints but the latest of each namespace (and those it is rebuilt from), or "delete" all."""
        await self._runner.run_async(self._deletions.prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints, as `aprune` does."""
        self._runner.run_blocking(self._deletions.prune(thread_ids, strategy))


def _as_it_is_now(checkpoint: Checkpoint) -> Checkpoint:
    """Copy the lists, dicts and sets of a checkpoint: LangGraph goes on changing them before they are stored."""
    now = checkpoint.copy()
    now["channel_values"] = values = checkpoint.get("channel_values", {}).copy()
    now["channel_versions"] = checkpoint.get("channel_versions", {})
    now["versions_seen"] = checkpoint.get("versions_seen", {})
    for channel, value in values.items():
        if isinstance(value, (list, dict, set)):
            values[channel] = value.copy() if type(value) is list else copy(value)
    return now


def _is_of_a_graph(config: RunnableConfig) -> bool:
    """Whether the caller is a run or an update of a graph. Only for these LangGraph sets `recursion_limit`."""
    return "recursion_limit" in config
