"""LangGraph's `list`: the checkpoints of one session, of a thread with its subgraphs, or of all threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from everturn.adapters.langgraph.checkpoint_log import StoredCheckpoint
from everturn.adapters.langgraph.config import SEPARATOR, session_of, setting, thread_of
from everturn.adapters.langgraph.get import CheckpointReads
from everturn.adapters.langgraph.session_reader import SessionReader


class CheckpointListing:
    """Lists checkpoints, lazily: a session is read when its first checkpoint is asked for."""

    def __init__(self, reader: SessionReader, reads: CheckpointReads) -> None:
        self._reader = reader
        self._reads = reads

    async def checkpoints(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints that a config means: those of one session in the order they were put, latest first;
        those of several merged by id. `wanted`: values that the metadata must have."""
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

        listings = [of_session(*named) async for named in self._sessions(config)]
        count = 0
        async for found in listings[0] if len(listings) == 1 else _by_id(listings):
            if limit is not None and count >= limit:
                return
            count += 1
            yield found

    async def _sessions(self, config: RunnableConfig | None) -> AsyncIterator[tuple[str, str, str]]:
        """Yield thread, namespace and session id of every session that a config may mean."""
        thread = None if config is None else str(setting(config, "thread_id"))
        namespace = None if config is None else setting(config, "checkpoint_ns")
        if thread is not None and namespace is not None:
            yield thread, namespace, session_of(thread, namespace)
            return
        if thread is not None:
            yield thread, "", session_of(thread, "")
        async for session in self._reader.sessions("" if thread is None else session_of(thread, "") + SEPARATOR):
            yield *thread_of(session.session_id), session.session_id


async def _by_id(listings: Sequence[AsyncIterator[CheckpointTuple]]) -> AsyncIterator[CheckpointTuple]:
    """Merge the checkpoints of several sessions by their ids, greatest first. The order within a session stays."""
    nexts = [(found, listing) for listing in listings if (found := await next_of(listing)) is not None]
    while nexts:
        place = max(range(len(nexts)), key=lambda at: str(nexts[at][0].checkpoint["id"]))
        found, listing = nexts[place]
        yield found
        following = await next_of(listing)
        if following is None:
            del nexts[place]
        else:
            nexts[place] = following, listing


async def next_of(tuples: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    """Return the next checkpoint; None at the end."""
    return await anext(tuples, None)
