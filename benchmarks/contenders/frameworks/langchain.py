"""Under LangChain: one `add_messages` per turn, `.messages` to load. Its own histories are contenders already."""

from langchain_core.messages import BaseMessage

from benchmarks.contenders.langchain_messages import LangChainMessages
from everturn.adapters.langchain import EverturnChatMessageHistory
from everturn.bench.contenders import Place
from everturn.bench.contenders.everturn_store import open_store


class EverturnUnderLangChain(LangChainMessages):
    """`EverturnChatMessageHistory`, one object per session."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self._store = open_store(place)

    def session(self, session_id: str) -> EverturnChatMessageHistory:
        return EverturnChatMessageHistory(session_id, self._store)

    def add(self, session: EverturnChatMessageHistory, turn: list[BaseMessage]) -> None:
        session.add_messages(turn)

    def read(self, session: EverturnChatMessageHistory) -> list[BaseMessage]:
        return session.messages

    def close(self) -> None:
        """Close the store."""
        self._store.close()
