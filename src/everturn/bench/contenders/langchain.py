"""LangChain `SQLChatMessageHistory`: one `add_messages` per turn, `.messages` to load.

Rollback journal, its own default.
"""

import time
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package announces its own end on import
    from langchain_community.chat_message_histories import SQLChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage
from sqlalchemy import create_engine

from everturn.bench.workload import turns as make_turns


class LangChain:
    """One engine for all sessions, one history object per session."""

    def __init__(self, path: Path) -> None:
        """Make the engine on this empty directory."""
        self._engine = create_engine(f"sqlite:///{path / 'langchain.db'}")
        self._histories: dict[str, SQLChatMessageHistory] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        history = self._history(session_id)
        seconds = []
        for turn in [
            [HumanMessage(user["content"]), AIMessage(reply["content"])]
            for user, reply in make_turns(turns, first=first)
        ]:
            start = time.perf_counter()
            history.add_messages(turn)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        history = self._history(session_id)
        start = time.perf_counter()
        loaded = history.messages
        return time.perf_counter() - start, len(loaded)

    def _history(self, session_id: str) -> SQLChatMessageHistory:
        if session_id not in self._histories:
            self._histories[session_id] = SQLChatMessageHistory(session_id, connection=self._engine)
        return self._histories[session_id]

    def close(self) -> None:
        """See Contender.close."""
        self._engine.dispose()
