"""A conversation that began under another framework, and one that goes on under another."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

import everturn
from everturn.adapters.langchain import EverturnChatMessageHistory
from everturn.adapters.openai_agents import EverturnSession
from everturn.adapters.pydantic_ai import EverturnConversationStore

ITEMS: list[Any] = [
    {"role": "user", "content": "Where is order 1234?"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
]


def test_from_openai_agents_to_pydantic_ai_to_langchain_and_back() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            agents, store = EverturnSession("s", opened), EverturnConversationStore(opened)
            await agents.add_items(ITEMS)
            conversation = await store.load("s")
            assert conversation is not None
            parts = [part for message in conversation.messages for part in message.parts]
            assert [type(part) for part in parts] == [UserPromptPart, ToolCallPart, ToolReturnPart]
            conversation.messages += [
                ModelResponse(
                    parts=[TextPart("It is in Bern."), ToolCallPart("track", {"order": 5}, tool_call_id="c2")]
                ),
                ModelRequest(parts=[ToolReturnPart("track", "at sea", tool_call_id="c2"), UserPromptPart("Thanks!")]),
            ]
            await store.save(conversation)
            messages = EverturnChatMessageHistory("s", opened).messages
            assert [message.type for message in messages] == ["human", "ai", "tool", "ai", "tool", "human"]
            assert messages[3].tool_calls[0]["args"] == {"order": 5}  # type: ignore[attr-defined]
            items = await agents.get_items()
            assert items[:3] == ITEMS
            assert [item.get("type", item.get("role")) for item in items[3:]] == [
                "assistant",
                "function_call",
                "function_call_output",
                "user",
            ]
            loaded = await store.load("s")
            assert loaded is not None
            assert loaded.messages == conversation.messages

    asyncio.run(run())
