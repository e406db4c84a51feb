"""LangGraph `SqliteSaver`, without a graph around it: the least a checkpointer does to remember a turn.

checkpoints.py defines a turn. A compiled graph does the same and more (it also stores pending writes), so this is
kinder to the peer than the way it is used. The whole state is written each time: the cost of an append grows
with the history. WAL, its own default, with Python's synchronous=FULL.
"""

from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.contenders.checkpoints import CheckpointerContender


class LangGraphSqliteSaver(CheckpointerContender):
    """One saver for all threads."""

    def __init__(self, path: Path) -> None:
        """Open the saver in this empty directory."""
        self._context = SqliteSaver.from_conn_string(str(path / "langgraph.db"))
        self.saver = self._context.__enter__()

    def close(self) -> None:
        """Close the saver."""
        self._context.__exit__(None, None, None)
