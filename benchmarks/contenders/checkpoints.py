"""A LangGraph checkpointer without a graph around it: the calls that remember one more turn.

A turn is: read the latest checkpoint, add two messages to its `messages` channel, put the new checkpoint.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
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

from benchmarks.contenders.langchain_messages import KINDS
from everturn.bench.contenders.contender import BlockingContender
from everturn.bench.contenders.timing import Cost, costs
from everturn.bench.workload import PlainMessage


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


class CheckpointerContender(BlockingContender):
    """A contender that is a checkpointer: one for all threads. `latest` reads the whole state, too."""

    saver: BaseCheckpointSaver[Any]

    def session(self, session_id: str) -> RunnableConfig:
        return config_of(session_id)

    def made(self, turn: Sequence[PlainMessage]) -> list[BaseMessage]:
        """The number that a text begins with is its message's id."""
        return [KINDS[message["role"]](text := message["content"], id=text.partition(" ")[0]) for message in turn]

    def add(self, session: RunnableConfig, turn: list[BaseMessage]) -> None:
        self.saver.put(*following(self.saver, session, self.saver.get_tuple(session), turn))

    def read(self, session: RunnableConfig) -> list[BaseMessage]:
        latest = self.saver.get_tuple(session)
        return latest.checkpoint["channel_values"]["messages"] if latest else []

    def agent_turns(self, session_id: str, *, turns: int, first: int, count: int) -> list[Cost]:  # noqa: ARG002
        """Add turns: each has read the state by then, the latest messages in it. A second read would be unkind."""
        session = self.session(session_id)
        return costs(lambda turn: self.add(session, turn), self.prepared(turns, first))
