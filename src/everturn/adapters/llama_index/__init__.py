"""LlamaIndex: chat stores over a store of everturn's: `Memory.from_defaults(chat_store=EverturnDBChatStore(store))`.

chat_store.py  EverturnChatStore and EverturnDBChatStore, LlamaIndex's two interfaces
sessions.py    ChatSessions: reads and changes of a key's session, shared by both classes
messages.py    LlamaIndex's messages as entries and back
"""

from everturn.adapters._shared.sync_async import require

require("llama-index-core", (0, 14, 24), "llama-index")

from everturn.adapters.llama_index.chat_store import EverturnChatStore, EverturnDBChatStore  # noqa: E402 - after the check

__all__ = ["EverturnChatStore", "EverturnDBChatStore"]
