"""One process of a conversation with a real agent and a scripted model: the question is in the arguments."""

from __future__ import annotations

import json

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import everturn
from everturn.adapters.pydantic_ai import EverturnConversationStore


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls the tool when a question mentions an order; answers with what it has seen when it has the result."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"It is {last.content} (seen {len(messages)})")])
    if isinstance(last, UserPromptPart) and "order" in last.content:
        return ModelResponse(parts=[ToolCallPart("track", {"order": 1234}, tool_call_id="c1")])
    first = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    return ModelResponse(parts=[TextPart(f"You began with {first.content!r} (seen {len(messages)})")])


def make_agent() -> Agent[None, str]:
    agent = Agent(FunctionModel(answer), system_prompt="Be brief.")

    @agent.tool_plain
    def track(order: int) -> str:
        """Where an order is."""
        return f"in Bern with {order}"

    return agent


async def main(url: str, question: str) -> None:
    async with await everturn.open_async(url) as opened:
        store = EverturnConversationStore(opened)
        conversation = await store.load("customer-42") or Conversation(conversation_id="customer-42")
        result = await make_agent().run(question, conversation=conversation)
        await store.save(result)
        loaded = await store.load("customer-42")
        assert loaded is not None
        messages = ModelMessagesTypeAdapter.dump_python(loaded.messages, mode="json")
        print(json.dumps({"answer": result.output, "messages": messages, "requests": loaded.usage.requests}))
