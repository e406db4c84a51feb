"""LangChain: a chat history in a store of everturn's. Example: `EverturnChatMessageHistory("customer-42", store)`.

chat_history.py  EverturnChatMessageHistory, LangChain's interface
messages.py      LangChain's messages as entries and back; the LangGraph adapter uses it too
values.py        LangChainCodec: values inside messages as JSON and back
"""

from everturn.adapters._shared.sync_async import require

require("langchain-core", (1, 0), "langchain")

from everturn.adapters.langchain.chat_history import EverturnChatMessageHistory  # noqa: E402 - after the check

__all__ = ["EverturnChatMessageHistory"]
