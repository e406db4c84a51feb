"""LangChain: a chat message history in a store of everturn's.

chat_history.py  EverturnChatMessageHistory
messages.py      LangChain messages as ours and back
values.py        values that only LangChain's messages hold
"""

from everturn.adapters.langchain.chat_history import EverturnChatMessageHistory

__all__ = ["EverturnChatMessageHistory"]
