"""LangChain `SQLChatMessageHistory`: one `add_messages` per turn, `.messages` to load.

Rollback journal, its own default.
"""

import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package announces its own end on import
    from langchain_community.chat_message_histories import SQLChatMessageHistory
from langchain_core.messages import BaseMessage
from sqlalchemy import create_engine

from benchmarks.contenders.langchain_messages import LangChainMessages


class LangChainSQLHistory(LangChainMessages):
    """One SQLAlchemy engine for all sessions, one history object per session."""

    def __init__(self, path: Path) -> None:
        """Make the SQLAlchemy engine on this empty directory."""
        self._engine = create_engine(f"sqlite:///{path / 'langchain.db'}")
        self._histories: dict[str, SQLChatMessageHistory] = {}

    def session(self, session_id: str) -> SQLChatMessageHistory:
        if session_id not in self._histories:
            self._histories[session_id] = SQLChatMessageHistory(session_id, connection=self._engine)
        return self._histories[session_id]

    def add(self, session: SQLChatMessageHistory, turn: list[BaseMessage]) -> None:
        session.add_messages(turn)

    def read(self, session: SQLChatMessageHistory) -> list[BaseMessage]:
        return list(session.messages)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
