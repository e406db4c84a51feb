"""Under OpenAI Agents: one `add_items` per turn, `get_items` to load. Its other sessions are contenders already."""

from collections.abc import Sequence
from typing import Any

from agents.memory import Session

from benchmarks.contenders.under import Awaiting, asyncpg, opened_async
from everturn.adapters.openai_agents import EverturnSession
from everturn.bench.contenders import Place
from everturn.bench.workload import Message


class _Items(Awaiting):
    """Through the SDK's protocol."""

    def made(self, turn: Sequence[Message]) -> list[Any]:
        """The SDK's items."""
        return [{"role": message["role"], "content": message["content"]} for message in turn]

    async def add(self, session: Session, turn: list[Any]) -> None:
        """Append the turn."""
        await session.add_items(turn)

    async def read(self, session: Session) -> Sequence[object]:
        """All items."""
        return await session.get_items()


class Ours(_Items):
    """`EverturnSession`, one object per session, over the asynchronous face."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(opened_async(place))

    def session(self, session_id: str) -> EverturnSession:
        """The session."""
        return EverturnSession(session_id, self._store)

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._store.close())
        self.runner.close()


class SQLAlchemy(_Items):
    """`SQLAlchemySession`, one object per session, kept; one engine for all, with asyncpg."""

    def __init__(self, url: str) -> None:
        """Make the engine; it connects when it is used."""
        from sqlalchemy.ext.asyncio import create_async_engine

        super().__init__()
        self._engine = create_async_engine(asyncpg(url))
        self._sessions: dict[str, Session] = {}

    def session(self, session_id: str) -> Session:
        """The session."""
        from agents.extensions.memory import SQLAlchemySession

        if session_id not in self._sessions:
            self._sessions[session_id] = SQLAlchemySession(session_id, engine=self._engine, create_tables=True)
        return self._sessions[session_id]

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._engine.dispose())
        self.runner.close()
