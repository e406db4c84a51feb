"""Under OpenAI Agents: one `add_items` per turn, `get_items` to load. Its other sessions are contenders already."""

from agents.memory import Session

from benchmarks.contenders.frameworks import asyncpg
from benchmarks.contenders.on_sqlite.openai_agents import OpenAIItems
from everturn.adapters.openai_agents import EverturnSession
from everturn.bench.contenders import Place
from everturn.bench.contenders.everturn_store import open_async_store


class EverturnUnderOpenAIAgents(OpenAIItems):
    """`EverturnSession`, one object per session, over `AsyncMemoryStore`."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(open_async_store(place))

    def session(self, session_id: str) -> EverturnSession:
        return EverturnSession(session_id, self._store)

    def close(self) -> None:
        """Close the store and the loop."""
        self.runner.run(self._store.close())
        self.runner.close()


class OpenAISQLAlchemySession(OpenAIItems):
    """`SQLAlchemySession`, one object per session, kept; one engine for all, with asyncpg."""

    def __init__(self, url: str) -> None:
        """Make the engine; it connects when it is used."""
        from sqlalchemy.ext.asyncio import create_async_engine

        super().__init__()
        self._engine = create_async_engine(asyncpg(url))
        self._sessions: dict[str, Session] = {}

    def session(self, session_id: str) -> Session:
        from agents.extensions.memory import SQLAlchemySession

        if session_id not in self._sessions:
            self._sessions[session_id] = SQLAlchemySession(session_id, engine=self._engine, create_tables=True)
        return self._sessions[session_id]

    def close(self) -> None:
        """Close the store and the loop."""
        self.runner.run(self._engine.dispose())
        self.runner.close()
