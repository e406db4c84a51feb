"""Google ADK `SqliteSessionService`: a turn is two `append_event` calls, as it takes one event at a time.

Rollback journal and a new connection per call, its own defaults.
"""

import asyncio
import time
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

from everturn.bench.workload import Message
from everturn.bench.workload import turns as make_turns

APP, USER = "bench", "user"


class GoogleADK:
    """One service; a session object is kept from call to call, as a runner does."""

    def __init__(self, path: Path) -> None:
        """Make the service in this empty directory."""
        self._service = SqliteSessionService(str(path / "adk.db"))
        self._runner = asyncio.Runner()
        self._sessions: dict[str, Session] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        prepared = [[made(message) for message in turn] for turn in make_turns(turns, first=first)]
        return self._runner.run(self._append(session_id, prepared))

    async def _append(self, session_id: str, prepared: list[list[Event]]) -> list[float]:
        if session_id not in self._sessions:
            self._sessions[session_id] = await self._service.create_session(
                app_name=APP, user_id=USER, session_id=session_id
            )
        session = self._sessions[session_id]
        seconds = []
        for turn in prepared:
            start = time.perf_counter()
            for event in turn:
                await self._service.append_event(session, event)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        return self._runner.run(self._load(session_id))

    async def _load(self, session_id: str) -> tuple[float, int]:
        start = time.perf_counter()
        session = await self._service.get_session(app_name=APP, user_id=USER, session_id=session_id)
        return time.perf_counter() - start, len(session.events) if session else 0

    def close(self) -> None:
        """See Contender.close."""
        self._runner.run(self._service.close())
        self._runner.close()


def made(message: Message) -> Event:
    """The message as an event."""
    role = "model" if message["role"] == "assistant" else "user"
    return Event(author=role, content=Content(role=role, parts=[Part(text=message["content"])]))
