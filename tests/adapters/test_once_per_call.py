"""once_per_call under the three frameworks that tell tools the id of their call, with real runners and scripted models.

The model of each makes the call `c1`, however often it is asked: as in a run that is resumed from its stored calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, RunState, Usage, function_tool
from agents.tool_context import ToolContext as OpenAIContext
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner as AdkRunner
from google.adk.tools.tool_context import ToolContext as AdkContext
from google.genai.types import Content, FunctionCall, Part
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai import messages as pydantic_messages
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.function import FunctionModel

import everturn
from everturn import EffectInDoubt, InvalidInput
from everturn.adapters import google_adk, openai_agents, pydantic_ai
from tests.adapters.google_adk import worker as adk_worker
from tests.adapters.openai_agents import worker as openai_worker
from tests.adapters.stores import over_both_stores

Body = Callable[[int], Any]
RunOnce = Callable[..., Awaitable[str]]


class Receipt(BaseModel):
    order: int


class Declined(Exception):
    pass


# --- one run of an agent that pays back order 1234, under each framework ---------------------------------------------


class OpenAIModel(openai_worker.Scripted):
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        if input[-1].get("type") == "function_call_output":
            return await super().get_response(system_instructions, input)
        call = ResponseFunctionToolCall(
            id="fc1", call_id="c1", name="refund", arguments='{"order": 1234}', type="function_call"
        )
        return ModelResponse([call], Usage(), "r1")


def openai_agent(store: Any, body: Body, *, needs_approval: bool = False, **options: Any) -> Agent[Any]:
    @function_tool(failure_error_function=None, needs_approval=needs_approval)
    @openai_agents.once_per_call(store, "customer-42", **options)
    async def refund(context: OpenAIContext[Any], order: int) -> Any:
        return body(order)

    return Agent(name="refunds", tools=[refund], model=OpenAIModel())


QUIET = RunConfig(tracing_disabled=True)


async def run_openai(store: Any, body: Body, **options: Any) -> str:
    result = await Runner.run(openai_agent(store, body, **options), "Pay it back.", run_config=QUIET)
    return str(result.final_output)


async def run_pydantic(store: Any, body: Body, **options: Any) -> str:
    def answer(messages: list[Any], _: Any) -> Any:
        last = messages[-1].parts[-1]
        if isinstance(last, pydantic_messages.ToolReturnPart):
            return pydantic_messages.ModelResponse(parts=[pydantic_messages.TextPart(f"It is {last.content}")])
        call = pydantic_messages.ToolCallPart("refund", {"order": 1234}, tool_call_id="c1")
        return pydantic_messages.ModelResponse(parts=[call])

    agent = PydanticAgent(FunctionModel(answer))

    @agent.tool
    @pydantic_ai.once_per_call(store, **options)
    def refund(context: RunContext[None], order: int) -> Any:
        return body(order)

    conversations = pydantic_ai.EverturnConversationStore(store)
    conversation = await conversations.load("customer-42") or Conversation(conversation_id="customer-42")
    result = await agent.run("Pay it back.", conversation=conversation)
    await conversations.save(result)
    return result.output


class AdkModel(adk_worker.Scripted):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = (llm_request.contents[-1].parts or [Part()])[-1]
        if last.function_response is not None:
            part = Part(text=f"It is {(last.function_response.response or {})}")
        else:
            part = Part(function_call=FunctionCall(id="c1", name="refund", args={"order": 1234}))
        yield LlmResponse(content=Content(role="model", parts=[part]))


async def run_adk(store: Any, body: Body, **options: Any) -> str:
    @google_adk.once_per_call(store, **options)
    def refund(order: int, tool_context: AdkContext) -> Any:
        return body(order)

    service = google_adk.EverturnSessionService(store)
    agent = LlmAgent(name="refunds", model=AdkModel(model="scripted"), tools=[refund])
    runner = AdkRunner(app_name="shop", agent=agent, session_service=service, auto_create_session=True)
    return await adk_worker.ask(runner, "Pay it back.")


FRAMEWORKS = {
    "openai_agents": (run_openai, "customer-42"),
    "pydantic_ai": (run_pydantic, "customer-42#effects"),
    "google_adk": (run_adk, "shop/ann/42#effects"),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> tuple[RunOnce, str]:
    return FRAMEWORKS[request.param]


async def effects(store: Any, session_id: str) -> list[Any]:
    found = store.get_effects(session_id)
    return list(await found if isinstance(found, Awaitable) else found)


# --- tests -----------------------------------------------------------------------------------------------------------


def test_a_call_that_is_made_again_returns_the_first_result(framework: tuple[RunOnce, str], tmp_path: Path) -> None:
    run, session_id = framework

    async def story(store: Any) -> None:
        paid: list[int] = []

        def body(order: int) -> str:
            paid.append(order)
            return f"refund {len(paid)} of {order}"

        first, again = await run(store, body), await run(store, body)
        assert paid == [1234]
        assert "refund 1 of 1234" in first
        assert "refund 1 of 1234" in again
        (effect,) = await effects(store, session_id)
        assert (effect.key, effect.status, effect.result) == ("refund:c1", "finished", "refund 1 of 1234")
        assert effect.request == {"tool": "refund", "arguments": {"order": 1234}}

    over_both_stores(tmp_path, story)


def test_an_error_of_the_tool_leaves_the_call_in_doubt(framework: tuple[RunOnce, str]) -> None:
    run, session_id = framework
    paid: list[int] = []

    def body(order: int) -> str:
        paid.append(order)
        raise TimeoutError("no answer of the bank")

    async def story() -> None:
        with everturn.open("sqlite://") as store:
            with pytest.raises(BaseException, match="no answer of the bank"):
                await run(store, body)
            with pytest.raises(BaseException, match="in doubt") as caught:
                await run(store, body)
            assert isinstance(caught.value, EffectInDoubt) or isinstance(caught.value.__cause__, EffectInDoubt)
            assert [effect.status for effect in store.get_effects(session_id)] == ["started"]

    asyncio.run(story())
    assert paid == [1234]


def test_a_failure_that_was_named_lets_the_call_be_made_again(framework: tuple[RunOnce, str]) -> None:
    run, _ = framework
    calls: list[int] = []

    def body(order: int) -> str:
        calls.append(order)
        if len(calls) == 1:
            raise Declined("the card was declined")
        return "paid"

    async def story() -> None:
        with everturn.open("sqlite://") as store:
            with pytest.raises(BaseException, match="declined"):
                await run(store, body, failures=Declined)
            assert "paid" in await run(store, body, failures=Declined)

    asyncio.run(story())
    assert len(calls) == 2


def test_a_key_of_the_arguments_takes_the_place_of_the_call(framework: tuple[RunOnce, str]) -> None:
    run, session_id = framework

    def by_order(*args: Any, **kwargs: Any) -> str:
        return f"refund-{kwargs.get('order', args[-1] if args else None)}"

    async def story() -> None:
        with everturn.open("sqlite://") as store:
            await run(store, lambda order: "paid", key=by_order)
            assert [effect.key for effect in store.get_effects(session_id)] == ["refund-1234"]

    asyncio.run(story())


def test_a_model_is_returned_as_an_object_both_times(framework: tuple[RunOnce, str]) -> None:
    run, session_id = framework

    async def story() -> None:
        with everturn.open("sqlite://") as store:
            first = await run(store, lambda order: Receipt(order=order))
            assert "'order': 1234" in first
            assert "'order': 1234" in await run(store, lambda order: Receipt(order=order))
            assert store.get_effects(session_id)[0].result == {"order": 1234}

    asyncio.run(story())


def test_a_call_that_is_approved_twice_is_made_once(tmp_path: Path) -> None:
    """OpenAI Agents: two workers resume one stored state."""

    async def story(store: Any) -> None:
        paid: list[int] = []
        agent = openai_agent(store, paid.append, needs_approval=True)
        asked = (await Runner.run(agent, "Pay it back.", run_config=QUIET)).to_state().to_json()
        for _ in range(2):
            state: Any = await RunState.from_json(agent, asked)
            for approval in state.get_interruptions():
                state.approve(approval)
            await Runner.run(agent, state, run_config=QUIET)
        assert paid == [1234]

    over_both_stores(tmp_path, story)


def test_a_tool_without_a_context_is_refused_and_does_nothing() -> None:
    paid: list[int] = []
    with everturn.open("sqlite://") as store:

        @pydantic_ai.once_per_call(store)
        def refund(order: int) -> None:
            paid.append(order)

        with pytest.raises(InvalidInput, match="without a RunContext"):
            asyncio.run(refund(1234))
    assert paid == []


def test_deletion_takes_the_effects_with_it() -> None:
    async def story() -> None:
        with everturn.open("sqlite://") as store:
            await run_adk(store, str)
            await run_pydantic(store, str)
            service, conversations = (
                google_adk.EverturnSessionService(store),
                pydantic_ai.EverturnConversationStore(store),
            )
            await service.delete_session(app_name="shop", user_id="ann", session_id="42")
            await conversations.delete("customer-42")
            left = [session.session_id for session in store.sessions().sessions]
            assert [name for name in left if "#effects" in name] == []

    asyncio.run(story())
