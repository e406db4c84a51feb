"""The adapter as a target of the contract kit: `everturn check tests.adapters.pydantic_ai.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from everturn import InvalidInput
from everturn.adapters.pydantic_ai import EverturnConversationStore
from tests.adapters.stores import at_dynamodb, in_a_file, on_a_server


class Chats:
    """A chat's memory as an application writes it: load, go on, save; and again if someone else was quicker."""

    def __init__(self, store: EverturnConversationStore) -> None:
        self._store = store

    async def add_messages(self, session_id: str, messages: list[Any]) -> None:
        made = [_made(message) for message in messages]
        for attempt in range(6):
            conversation = await self._store.load(session_id) or Conversation(conversation_id=session_id)
            conversation.messages.extend(made)
            try:
                await self._store.save(conversation)
            except ConversationConflict:
                if attempt == 5:
                    raise
            else:
                return

    async def get_history(self, session_id: str) -> list[dict[str, Any]]:
        conversation = await self._store.load(session_id)
        return [] if conversation is None else [_read(message) for message in conversation.messages]

    async def clear(self, session_id: str) -> None:
        await self._store.delete(session_id)


def _made(message: dict[str, Any]) -> ModelMessage:
    content = message["content"]
    if not isinstance(content, str):
        raise InvalidInput("is a string", path="content")
    if message["role"] == "assistant":
        return ModelResponse(parts=[TextPart(content)])
    if message["role"] == "system":
        return ModelRequest(parts=[SystemPromptPart(content)])
    return ModelRequest(parts=[UserPromptPart(content)], metadata={"role": message["role"]})


def _read(message: ModelMessage) -> dict[str, Any]:
    (part,) = message.parts
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": part.content}  # type: ignore[union-attr]
    role = "system" if isinstance(part, SystemPromptPart) else (message.metadata or {}).get("role", "user")
    return {"role": role, "content": part.content}  # type: ignore[union-attr]


@contextmanager
def on_sqlite(
    where: Path, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None
) -> Iterator[Chats]:
    with in_a_file(where, ttl=ttl, timeout=timeout, vfs=vfs) as store:
        yield Chats(EverturnConversationStore(store))


@contextmanager
def on_valkey(where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None) -> Iterator[Chats]:
    with on_a_server(where, redis_url, ttl=ttl, timeout=timeout) as store:
        yield Chats(EverturnConversationStore(store))


on_dynamodb = at_dynamodb(on_valkey)
