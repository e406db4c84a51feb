"""Pydantic AI: conversations in a store of everturn's. Example: `await EverturnConversationStore(store).save(result)`.

conversation_store.py  EverturnConversationStore, Pydantic AI's interface
messages.py            Pydantic AI's messages as entries and back
once_per_call.py       once_per_call, for tools: a call is an effect, done once
"""

from everturn.adapters._shared.sync_async import require

require("pydantic-ai-slim", (2, 66), "pydantic-ai")

from everturn.adapters.pydantic_ai.conversation_store import EverturnConversationStore  # noqa: E402 - after the check
from everturn.adapters.pydantic_ai.once_per_call import once_per_call  # noqa: E402

__all__ = ["EverturnConversationStore", "once_per_call"]
