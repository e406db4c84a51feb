"""Under Google ADK: a turn is two `append_event` calls on a session object that is kept, `get_session` to load."""

import time
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.database_session_service import DatabaseSessionService

from benchmarks.contenders.under import Awaiting, asyncpg, opened_async
from everturn.adapters.google_adk import EverturnSessionService
from everturn.bench.contenders import Place
from everturn.bench.contenders.google_adk import APP, USER, made
from everturn.bench.contenders.timing import timed_async
from everturn.bench.workload import turns as make_turns


class Service(Awaiting):
    """A session service. The object of a session is made before the clock starts, as a runner has it."""

    service: BaseSessionService

    def __init__(self) -> None:
        """Nothing is open yet."""
        super().__init__()
        self._sessions: dict[str, Session] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        if session_id not in self._sessions:
            created = self.service.create_session(app_name=APP, user_id=USER, session_id=session_id)
            self._sessions[session_id] = self.runner.run(created)
        session = self._sessions[session_id]
        prepared = [[made(message) for message in turn] for turn in make_turns(turns, first=first)]
        return self.runner.run(timed_async(lambda turn: self.add(session, turn), prepared))

    async def add(self, session: Session, turn: list[Event]) -> None:
        """Append the turn, event by event."""
        for event in turn:
            await self.service.append_event(session, event)

    async def _load(self, session: Any) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await self.service.get_session(app_name=APP, user_id=USER, session_id=session)
        return time.perf_counter() - start, len(loaded.events) if loaded else 0


class Ours(Service):
    """`EverturnSessionService` over the asynchronous face."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(opened_async(place))
        self.service = EverturnSessionService(self._store)

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._store.close())
        self.runner.close()


class Database(Service):
    """ADK's `DatabaseSessionService`, over aiosqlite or asyncpg, as it comes."""

    def __init__(self, place: Place) -> None:
        """Make the service."""
        super().__init__()
        if isinstance(place, Path):
            url = f"sqlite+aiosqlite:///{place / 'adk.db'}"
        else:
            url = asyncpg(place)
        self.service = self._database = DatabaseSessionService(url)

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._database.close())
        self.runner.close()


class Redis(Service):
    """ADK's `RedisSessionService`, which reads and writes a session whole, all its events in one value."""

    FEW = 50  # turns that are appended one by one

    def __init__(self, url: str) -> None:
        """Connect."""
        from google.adk.integrations.redis import RedisSessionService, RedisSessionServiceConfig

        super().__init__()
        self.service = self._redis = RedisSessionService(config=RedisSessionServiceConfig(uri=url))

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append. A long session is put there as its last append would: one by one takes minutes."""
        if turns <= self.FEW:
            return super().append(session_id, turns=turns, first=first)
        events = [made(message) for turn in make_turns(turns, first=first) for message in turn]
        session = Session(app_name=APP, user_id=USER, id=session_id, events=events)
        key = self._redis._session_key(APP, USER, session_id)
        self.runner.run(self._redis._get_redis().set(key, session.model_dump_json()))
        return []

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._redis._get_redis().aclose())
        self.runner.close()
