"""A conversation that began under another framework, and one that goes on under another."""

from __future__ import annotations

import asyncio
from typing import Any

import everturn
from everturn.adapters.google_adk import EverturnSessionService
from everturn.adapters.langchain import EverturnChatMessageHistory
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.google_adk.stories import CONVERSATION, OF, loaded, say, texts

ITEMS: list[Any] = [
    {"role": "user", "content": "Where is order 1234?"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
]


def test_from_openai_agents_to_adk_to_langchain_and_back() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as store:
            service = EverturnSessionService(store)
            name = service.everturn_session(**OF)
            agents = EverturnSession(name, store)
            await agents.add_items(ITEMS)
            session = await loaded(service)
            assert texts(session)[0] == "Where is order 1234?"
            (call,) = session.events[1].get_function_calls()
            (result,) = session.events[2].get_function_responses()
            assert (call.id, call.args, result.id, result.response) == (
                "c1",
                {"order": 1234},
                "c1",
                {"result": "in Bern"},
            )
            for event in (*CONVERSATION[1:3], say("Thanks!")):
                await service.append_event(session, event)
            messages = EverturnChatMessageHistory(name, store).messages
            assert [message.type for message in messages] == ["human", "ai", "tool", "ai", "tool", "tool", "human"]
            assert [one["id"] for one in messages[3].tool_calls] == ["c1", "c2"]  # type: ignore[attr-defined]
            items = await agents.get_items()
            assert items[:3] == ITEMS
            assert [item.get("type", item.get("role")) for item in items[3:]] == [
                "assistant",
                "function_call",
                "function_call",
                "function_call_output",
                "function_call_output",
                "user",
            ]
            assert (await loaded(service)).events == session.events

    asyncio.run(run())
