"""Pydantic AI: conversations in a store of everturn's.

conversation_store.py  EverturnConversationStore
messages.py            Pydantic AI's messages as entries and back
"""

from everturn.adapters.pydantic_ai.conversation_store import EverturnConversationStore

__all__ = ["EverturnConversationStore"]
