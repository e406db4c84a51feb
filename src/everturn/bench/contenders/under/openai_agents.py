"""Under OpenAI Agents: one `add_items` per turn, `get_items` to load. Its own sessions are contenders already."""

from collections.abc import Sequence
from typing import Any

from everturn.adapters.openai_agents import EverturnSession
from everturn.bench.contenders import Place
from everturn.bench.contenders.under import Awaiting, opened_async
from everturn.bench.workload import Message


class Ours(Awaiting):
    """`EverturnSession`, one object per session, over the asynchronous face."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(opened_async(place))

    def session(self, session_id: str) -> EverturnSession:
        """The session."""
        return EverturnSession(session_id, self._store)

    def made(self, turn: Sequence[Message]) -> list[Any]:
        """The SDK's items."""
        return [{"role": message["role"], "content": message["content"]} for message in turn]

    async def add(self, session: EverturnSession, turn: list[Any]) -> None:
        """Append the turn."""
        await session.add_items(turn)

    async def read(self, session: EverturnSession) -> Sequence[object]:
        """All items."""
        return await session.get_items()

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._store.close())
        self.runner.close()
