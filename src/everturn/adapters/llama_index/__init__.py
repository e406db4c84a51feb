"""LlamaIndex: chat stores on a store of everturn's.

chat_store.py  EverturnChatStore, EverturnDBChatStore
messages.py    LlamaIndex messages as ours and back
sessions.py    one key of a chat store as one session
"""

from everturn.adapters._shared.sync_async import require

require("llama-index-core", (0, 14, 24), "llama-index")

from everturn.adapters.llama_index.chat_store import EverturnChatStore, EverturnDBChatStore  # noqa: E402 - after the check

__all__ = ["EverturnChatStore", "EverturnDBChatStore"]
