"""The workload in LangChain's messages. Needs langchain-core and no store of LangChain's."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from everturn.bench.contenders.contender import BlockingContender
from everturn.bench.workload import PlainMessage

KINDS: dict[str, type[HumanMessage | AIMessage]] = {"user": HumanMessage, "assistant": AIMessage}


class LangChainMessages(BlockingContender):
    """A contender that takes LangChain's messages."""

    def made(self, turn: Sequence[PlainMessage]) -> list[BaseMessage]:
        return [KINDS[message["role"]](message["content"]) for message in turn]
