"""Under Google ADK: a turn is two `append_event` calls on a session object that is kept, `get_session` to load."""

from pathlib import Path

from google.adk.sessions import Session
from google.adk.sessions.database_session_service import DatabaseSessionService

from benchmarks.contenders.frameworks import asyncpg
from benchmarks.contenders.on_sqlite.google_adk import APP, USER, AdkService
from everturn.adapters.google_adk import EverturnSessionService
from everturn.bench.contenders import Place
from everturn.bench.contenders.everturn_store import open_async_store


class EverturnUnderADK(AdkService):
    """`EverturnSessionService` over `AsyncMemoryStore`."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(open_async_store(place))
        self.service = EverturnSessionService(self._store)

    def close(self) -> None:
        """Close the store and the loop."""
        self.runner.run(self._store.close())
        self.runner.close()


class AdkDatabaseService(AdkService):
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
        """Close the store and the loop."""
        self.runner.run(self._database.close())
        self.runner.close()


class AdkRedisService(AdkService):
    """ADK's `RedisSessionService`, which reads and writes a session whole, all its events in one value."""

    FEW = 50  # turns that are appended one by one

    def __init__(self, url: str) -> None:
        """Connect."""
        from google.adk.integrations.redis import RedisSessionService, RedisSessionServiceConfig

        super().__init__()
        self.service = self._redis = RedisSessionService(config=RedisSessionServiceConfig(uri=url))

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """Append the turns. A long session is written whole, as its last append would: one by one takes minutes."""
        if turns <= self.FEW:
            return super().append(session_id, turns=turns, first=first)
        events = [event for turn in self.prepared(turns, first) for event in turn]
        session = self._sessions[session_id] = Session(app_name=APP, user_id=USER, id=session_id, events=events)
        key = self._redis._session_key(APP, USER, session_id)
        self.runner.run(self._redis._get_redis().set(key, session.model_dump_json()))
        return []

    def close(self) -> None:
        """Close the store and the loop."""
        self.runner.run(self._redis._get_redis().aclose())
        self.runner.close()
