"""LangChain: a chat message history in a store of everturn's.

chat_history.py  EverturnChatMessageHistory
messages.py      LangChain messages as ours and back
values.py        values that only LangChain's messages hold
"""

from everturn.adapters._shared.sync_async import require

require("langchain-core", (1, 0), "langchain")

from everturn.adapters.langchain.chat_history import EverturnChatMessageHistory  # noqa: E402 - after the check

__all__ = ["EverturnChatMessageHistory"]
