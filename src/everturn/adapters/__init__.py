"""Adapters: everturn behind the interfaces of frameworks. Importing this package imports no framework.

fastapi.py      a store for the life of each worker, for `Depends(get_store)`
langgraph/      EverturnSaver, a checkpointer
langchain/      EverturnChatMessageHistory, a chat history
llama_index/    EverturnDBChatStore for its Memory, and EverturnChatStore
google_adk/     EverturnSessionService, a session service
openai_agents/  EverturnSession, a session of the Agents SDK
pydantic_ai/    EverturnConversationStore, a conversation store
_shared/        parts that several adapters use

A folder named after a framework has three kinds of modules: the class that the framework calls, the conversion of its
messages into entries and back (messages.py, events.py, checkpoint_entries.py), and helpers. Its `__init__` has the map.
"""
