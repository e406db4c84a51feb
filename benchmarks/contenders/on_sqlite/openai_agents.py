"""OpenAI Agents `SQLiteSession`: one `add_items` per turn, `get_items` to load. WAL, its own default."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.memory import Session

from everturn.bench.contenders.contender import AsyncContender
from everturn.bench.workload import PlainMessage


class OpenAIItems(AsyncContender):
    """A contender that is driven through the SDK's `Session` protocol."""

    def made(self, turn: Sequence[PlainMessage]) -> list[Any]:
        return [{"role": message["role"], "content": message["content"]} for message in turn]

    async def add(self, session: Session, turn: list[Any]) -> None:
        await session.add_items(turn)

    async def read(self, session: Session) -> Sequence[object]:
        return await session.get_items()

    async def latest(self, session: Session, count: int) -> Sequence[object]:
        return await session.get_items(limit=count)


class OpenAISQLiteSession(OpenAIItems):
    """One session object per session, kept open, as the SDK's documentation does."""

    def __init__(self, path: Path) -> None:
        """Remember where the file goes; a session opens it."""
        super().__init__()
        self._path = path / "agents.db"
        self._sessions: dict[str, SQLiteSession] = {}

    def session(self, session_id: str) -> SQLiteSession:
        if session_id not in self._sessions:
            self._sessions[session_id] = SQLiteSession(session_id, self._path)
        return self._sessions[session_id]

    def close(self) -> None:
        """Close the sessions and the loop."""
        for session in self._sessions.values():
            session.close()
        self.runner.close()
