"""What a LangGraph checkpointer is given to remember one more turn, without a graph around it. Writes nothing."""

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
    version = saver.get_next_version(None if previous is None else str(previous), None)
    checkpoint["id"] = str(uuid6(clock_seq=step))
    checkpoint["channel_values"]["messages"] = checkpoint["channel_values"].get("messages", []) + turn
    checkpoint["channel_versions"]["messages"] = version
    return latest.config if latest else config, checkpoint, {"source": "update", "step": step}, {"messages": version}
