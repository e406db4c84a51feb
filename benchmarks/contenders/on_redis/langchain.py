"""LangChain `RedisChatMessageHistory` (langchain-community): one `add_messages` per turn, `.messages` to load.

langchain-redis, its successor, needs a server with a search module, which neither Valkey nor plain Redis has.
"""

import asyncio
import warnings
from collections.abc import Sequence

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package announces its own end on import
    from langchain_community.chat_message_histories import RedisChatMessageHistory
from langchain_core.messages import BaseMessage

from benchmarks.contenders.langchain_messages import LangChainMessages
from everturn.bench.contenders.timing import timed_tasks


class LangChainRedisHistory(LangChainMessages):
    """One history object per session, kept. Its async methods are its blocking ones in asyncio's threads."""

    def __init__(self, url: str) -> None:
        """Remember where the server is; a history connects to it."""
        self._url = url
        self._runner = asyncio.Runner()
        self._histories: dict[str, RedisChatMessageHistory] = {}

    def session(self, session_id: str) -> RedisChatMessageHistory:
        if session_id not in self._histories:
            self._histories[session_id] = RedisChatMessageHistory(session_id, url=self._url)
        return self._histories[session_id]

    def add(self, session: RedisChatMessageHistory, turn: list[BaseMessage]) -> None:
        session.add_messages(turn)

    def read(self, session: RedisChatMessageHistory) -> list[BaseMessage]:
        return session.messages

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        async def add(session_id: str, messages: list[BaseMessage]) -> None:
            await self.session(session_id).aadd_messages(messages)

        taken = self._runner.run(timed_tasks(add, ids, self.prepared(turns)))
        for session_id in ids:  # each has a connection of its own
            self._histories.pop(session_id).redis_client.close()
        return taken

    def close(self) -> None:
        """Close the loop."""
        self._runner.close()
