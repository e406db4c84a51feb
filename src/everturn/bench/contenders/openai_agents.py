"""OpenAI Agents `SQLiteSession`: one `add_items` per turn, `get_items` to load. WAL, its own default."""

import asyncio
import time
from pathlib import Path

from agents import SQLiteSession, TResponseInputItem

from everturn.bench.workload import turns as make_turns


class OpenAIAgents:
    """One session object per session, kept open, as the SDK's documentation does."""

    def __init__(self, path: Path) -> None:
        """Remember where the file goes; a session opens it."""
        self._path = path / "agents.db"
        self._runner = asyncio.Runner()
        self._sessions: dict[str, SQLiteSession] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        prepared: list[list[TResponseInputItem]] = [
            [{"role": "user", "content": user["content"]}, {"role": "assistant", "content": reply["content"]}]
            for user, reply in make_turns(turns, first=first)
        ]
        return self._runner.run(self._append(self._session(session_id), prepared))

    async def _append(self, session: SQLiteSession, prepared: list[list[TResponseInputItem]]) -> list[float]:
        seconds = []
        for items in prepared:
            start = time.perf_counter()
            await session.add_items(items)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        return self._runner.run(self._load(self._session(session_id)))

    async def _load(self, session: SQLiteSession) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await session.get_items()
        return time.perf_counter() - start, len(loaded)

    def _session(self, session_id: str) -> SQLiteSession:
        if session_id not in self._sessions:
            self._sessions[session_id] = SQLiteSession(session_id, self._path)
        return self._sessions[session_id]

    def close(self) -> None:
        """See Contender.close."""
        for session in self._sessions.values():
            session.close()
        self._runner.close()
