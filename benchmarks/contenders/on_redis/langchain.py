"""LangChain `RedisChatMessageHistory` (langchain-community): one `add_messages` per turn, `.messages` to load.

langchain-redis, its successor, needs a server with a search module, which neither Valkey nor plain Redis has.
"""

import asyncio
import time
import warnings
from collections.abc import Sequence

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package announces its own end on import
    from langchain_community.chat_message_histories import RedisChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from everturn.bench.contenders.timing import flooded, timed
from everturn.bench.workload import turns as make_turns


class LangChain:
    """One history object per session, kept. Its async methods are its blocking ones in asyncio's threads."""

    def __init__(self, url: str) -> None:
        """Remember where the server is; a history connects to it."""
        self._url = url
        self._runner = asyncio.Runner()
        self._histories: dict[str, RedisChatMessageHistory] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        return timed(self._history(session_id).add_messages, _messages(turns, first))

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""

        async def add(session_id: str, messages: list[BaseMessage]) -> None:
            await self._history(session_id).aadd_messages(messages)

        taken = self._runner.run(flooded(add, ids, _messages(turns, 0)))
        for session_id in ids:  # each has a connection of its own
            self._histories.pop(session_id).redis_client.close()
        return taken

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        history = self._history(session_id)
        start = time.perf_counter()
        loaded = history.messages
        return time.perf_counter() - start, len(loaded)

    def _history(self, session_id: str) -> RedisChatMessageHistory:
        if session_id not in self._histories:
            self._histories[session_id] = RedisChatMessageHistory(session_id, url=self._url)
        return self._histories[session_id]

    def close(self) -> None:
        """See Contender.close."""
        self._runner.close()


def _messages(turns: int, first: int) -> list[list[BaseMessage]]:
    return [
        [HumanMessage(user["content"]), AIMessage(reply["content"])] for user, reply in make_turns(turns, first=first)
    ]
