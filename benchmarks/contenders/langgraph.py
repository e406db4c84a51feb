"""LangGraph `SqliteSaver`, without a graph around it: the least a checkpointer does to remember a turn.

A turn is: read the latest checkpoint, add two messages to its `messages` channel, put the new checkpoint. A
compiled graph does the same and more (it also stores pending writes), so this is kinder to the peer than
the way it is used. The whole state is written each time: the cost of an append grows with the history, and
the figure here is for a short one. WAL, its own default.
"""

import time
from pathlib import Path

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import copy_checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.workload import turns as make_turns


class LangGraph:
    """One saver for all threads."""

    def __init__(self, path: Path) -> None:
        """Open the saver in this empty directory."""
        self._context = SqliteSaver.from_conn_string(str(path / "langgraph.db"))
        self._saver = self._context.__enter__()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        config = _config(session_id)
        seconds = []
        for turn in [
            [HumanMessage(user["content"], id=f"u{number}"), AIMessage(reply["content"], id=f"a{number}")]
            for number, (user, reply) in enumerate(make_turns(turns, first=first), first)
        ]:
            start = time.perf_counter()
            self._put(config, turn)
            seconds.append(time.perf_counter() - start)
        return seconds

    def _put(self, config: RunnableConfig, turn: list[BaseMessage]) -> None:
        latest = self._saver.get_tuple(config)
        checkpoint = copy_checkpoint(latest.checkpoint) if latest else empty_checkpoint()
        step = latest.metadata.get("step", 0) + 1 if latest else 0
        previous = checkpoint["channel_versions"].get("messages")
        version = self._saver.get_next_version(None if previous is None else str(previous), None)
        checkpoint["id"] = str(uuid6(clock_seq=step))
        checkpoint["channel_values"]["messages"] = checkpoint["channel_values"].get("messages", []) + turn
        checkpoint["channel_versions"]["messages"] = version
        parent = latest.config if latest else config
        self._saver.put(parent, checkpoint, {"source": "update", "step": step}, {"messages": version})

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        latest = self._saver.get_tuple(_config(session_id))
        loaded = latest.checkpoint["channel_values"]["messages"] if latest else []
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        self._context.__exit__(None, None, None)


def _config(session_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}
