"""LangGraph `SqliteSaver`, without a graph around it: the least a checkpointer does to remember a turn.

A turn is: read the latest checkpoint, add two messages to its `messages` channel, put the new checkpoint. A
compiled graph does the same and more (it also stores pending writes), so this is kinder to the peer than
the way it is used. The whole state is written each time: the cost of an append grows with the history, and
the figure here is for a short one. WAL, its own default.
"""

import time
from pathlib import Path

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver

from everturn.bench.contenders.checkpoints import as_messages, config_of, following
from everturn.bench.contenders.timing import timed


class LangGraph:
    """One saver for all threads."""

    def __init__(self, path: Path) -> None:
        """Open the saver in this empty directory."""
        self._context = SqliteSaver.from_conn_string(str(path / "langgraph.db"))
        self._saver = self._context.__enter__()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        config = config_of(session_id)
        return timed(lambda turn: self._put(config, turn), as_messages(turns, first))

    def _put(self, config: RunnableConfig, turn: list[BaseMessage]) -> None:
        self._saver.put(*following(self._saver, config, self._saver.get_tuple(config), turn))

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        latest = self._saver.get_tuple(config_of(session_id))
        loaded = latest.checkpoint["channel_values"]["messages"] if latest else []
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        self._context.__exit__(None, None, None)
