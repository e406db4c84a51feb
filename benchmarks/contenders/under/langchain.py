"""Under LangChain: one `add_messages` per turn, `.messages` to load. Its own histories are contenders already."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from benchmarks.contenders.under import Blocking, opened
from everturn.adapters.langchain import EverturnChatMessageHistory
from everturn.bench.contenders import Place
from everturn.bench.workload import Message


class Ours(Blocking):
    """`EverturnChatMessageHistory`, one object per session."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self._store = opened(place)

    def session(self, session_id: str) -> EverturnChatMessageHistory:
        """The history."""
        return EverturnChatMessageHistory(session_id, self._store)

    def made(self, turn: Sequence[Message]) -> list[BaseMessage]:
        """LangChain's messages."""
        user, reply = turn
        return [HumanMessage(user["content"]), AIMessage(reply["content"])]

    def add(self, session: EverturnChatMessageHistory, turn: list[BaseMessage]) -> None:
        """Append the turn."""
        session.add_messages(turn)

    def read(self, session: EverturnChatMessageHistory) -> Sequence[object]:
        """All messages."""
        return session.messages

    def close(self) -> None:
        """See Contender.close."""
        self._store.close()
