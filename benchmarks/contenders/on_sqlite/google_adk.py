"""Google ADK `SqliteSessionService`: a turn is two `append_event` calls, as it takes one event at a time.

Rollback journal and a new connection per call, its own defaults.
"""

from collections.abc import Sequence
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

from everturn.bench.contenders.contender import AsyncContender
from everturn.bench.workload import PlainMessage

APP, USER = "bench", "user"


class AdkService(AsyncContender):
    """A contender that is a session service. A session object is kept from call to call, as a runner does."""

    service: BaseSessionService

    def __init__(self) -> None:
        """Make the loop. Nothing is open yet."""
        super().__init__()
        self._sessions: dict[str, Session] = {}

    def session(self, session_id: str) -> Session:
        """The kept object; the session is made before the clock starts."""
        if session_id not in self._sessions:
            created = self.service.create_session(app_name=APP, user_id=USER, session_id=session_id)
            self._sessions[session_id] = self.runner.run(created)
        return self._sessions[session_id]

    def made(self, turn: Sequence[PlainMessage]) -> list[Event]:
        return [_event(message) for message in turn]

    async def add(self, session: Session, turn: list[Event]) -> None:
        """Append the turn, event by event: the interface has nothing else."""
        for event in turn:
            await self.service.append_event(session, event)

    async def read(self, session: Session) -> Sequence[object]:
        loaded = await self.service.get_session(app_name=APP, user_id=USER, session_id=session.id)
        return loaded.events if loaded else []

    async def latest(self, session: Session, count: int) -> Sequence[object]:
        loaded = await self.service.get_session(
            app_name=APP, user_id=USER, session_id=session.id, config=GetSessionConfig(num_recent_events=count)
        )
        return loaded.events if loaded else []


class AdkSqliteService(AdkService):
    """`SqliteSessionService` in a file."""

    def __init__(self, path: Path) -> None:
        """Make the service in this empty directory."""
        super().__init__()
        self.service = self._sqlite = SqliteSessionService(str(path / "adk.db"))

    def close(self) -> None:
        """Close the service and the loop."""
        self.runner.run(self._sqlite.close())
        self.runner.close()


def _event(message: PlainMessage) -> Event:
    role = "model" if message["role"] == "assistant" else "user"
    return Event(author=role, content=Content(role=role, parts=[Part(text=message["content"])]))
