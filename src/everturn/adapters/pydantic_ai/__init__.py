"""Pydantic AI: conversations in a store of everturn's. Example: `await EverturnConversationStore(store).save(result)`.

conversation_store.py  EverturnConversationStore, Pydantic AI's interface
messages.py            Pydantic AI's messages as entries and back
"""

from everturn.adapters._shared.sync_async import require

require("pydantic-ai-slim", (2, 66), "pydantic-ai")

from everturn.adapters.pydantic_ai.conversation_store import EverturnConversationStore  # noqa: E402 - after the check

__all__ = ["EverturnConversationStore"]
