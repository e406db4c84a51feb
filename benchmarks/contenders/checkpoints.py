"""A LangGraph checkpointer without a graph around it: the calls that remember one more turn.

A turn is: read the latest checkpoint, add two messages to its `messages` channel, put the new checkpoint.
"""

import time
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    copy_checkpoint,
    empty_checkpoint,
)
from langgraph.checkpoint.base.id import uuid6

from everturn.bench.contenders.timing import timed
from everturn.bench.workload import turns as make_turns


def as_messages(turns: int, first: int) -> list[list[BaseMessage]]:
    """The workload's turns as LangChain's messages."""
    return [
        [HumanMessage(user["content"], id=f"u{number}"), AIMessage(reply["content"], id=f"a{number}")]
        for number, (user, reply) in enumerate(make_turns(turns, first=first), first)
    ]


def config_of(session_id: str) -> RunnableConfig:
    """The session, as LangGraph names a thread."""
    return {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}


def following(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, latest: CheckpointTuple | None, turn: list[BaseMessage]
) -> tuple[RunnableConfig, Checkpoint, CheckpointMetadata, ChannelVersions]:
    """The arguments of `put`: the latest checkpoint with two messages more in its `messages` channel."""
    checkpoint = copy_checkpoint(latest.checkpoint) if latest else empty_checkpoint()
    step = latest.metadata.get("step", 0) + 1 if latest else 0
    previous = checkpoint["channel_versions"].get("messages")
    version = saver.get_next_version(previous, None)
    checkpoint["id"] = str(uuid6(clock_seq=step))
    checkpoint["channel_values"]["messages"] = checkpoint["channel_values"].get("messages", []) + turn
    checkpoint["channel_versions"]["messages"] = version
    return latest.config if latest else config, checkpoint, {"source": "update", "step": step}, {"messages": version}


class CheckpointerContender:
    """A contender that is a checkpointer: one for all threads."""

    saver: BaseCheckpointSaver[Any]

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        config = config_of(session_id)
        return timed(lambda turn: self._put(config, turn), as_messages(turns, first))

    def _put(self, config: RunnableConfig, turn: list[BaseMessage]) -> None:
        self.saver.put(*following(self.saver, config, self.saver.get_tuple(config), turn))

    def load(self, session_id: str) -> tuple[float, int]:
        start = time.perf_counter()
        latest = self.saver.get_tuple(config_of(session_id))
        loaded = latest.checkpoint["channel_values"]["messages"] if latest else []
        return time.perf_counter() - start, len(loaded)
