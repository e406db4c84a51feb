"""Folds of a conversation of Pydantic AI: a history processor puts the summary before what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.function import AgentInfo, FunctionModel

import everturn
from everturn import AsyncMemoryStore
from everturn.adapters.pydantic_ai import EverturnConversationStore
from tests.adapters.folding import LEFT, folding_elsewhere


class Talk:
    """An agent whose model remembers the prompts that it was given."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store
        self._conversations = EverturnConversationStore(store)
        self.prompts: list[list[str]] = []
        self._agent = Agent(FunctionModel(self._answer), capabilities=[ProcessHistory(self._with_summary)])

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.prompts.append([str(getattr(part, "content", "")) for message in messages for part in message.parts])
        return ModelResponse(parts=[TextPart(f"a{len(self.prompts)}")])

    async def _with_summary(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        context = await self._store.get_context("c", max_messages=1)
        told = [SystemPromptPart(summary.text) for summary in context.summaries]
        return [ModelRequest(parts=told), *messages] if told else messages

    async def ask(self, question: str) -> None:
        conversation = await self._conversations.load("c") or Conversation(conversation_id="c")
        await self._conversations.save(await self._agent.run(question, conversation=conversation))


def test_a_conversation_goes_on_while_another_process_folds_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"

    async def story() -> None:
        async with await everturn.open_async(url) as store:
            talk = Talk(store)
            for number in range(1, 5):
                await talk.ask(f"q{number}")
            with folding_elsewhere(url, "c") as fold:
                await talk.ask("q5")
                assert await store.fold("c", pytest.fail, max_messages=LEFT) is None  # one model is paid
                fold.finish()
            await talk.ask("q6")
            assert talk.prompts[-2] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4", "q5"]
            assert talk.prompts[-1] == ["[q1 a1 q2 a2]", "q3", "a3", "q4", "a4", "q5", "a5", "q6"]
            await store.undo("c")
            assert len(await store.get_history("c")) == 12

    asyncio.run(story())


def test_a_fold_between_a_load_and_its_save_is_no_conflict(tmp_path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/memory.db") as store:
            conversations, agent = EverturnConversationStore(store), Agent("test")
            conversation = Conversation(conversation_id="c")
            for number in range(4):
                await conversations.save(await agent.run(f"q{number}", conversation=conversation))
                loaded = await conversations.load("c")
                assert loaded is not None
                conversation = loaded
            result = await agent.run("q4", conversation=conversation)
            assert await store.fold("c", lambda *_: "before", max_messages=LEFT) is not None
            await conversations.save(result)
            again = await conversations.load("c")
            assert again is not None
            assert len(again.messages) == LEFT + 2

    asyncio.run(story())
