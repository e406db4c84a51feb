"""One process of a conversation with a real Runner and a scripted model: the question is in the arguments."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent, RunConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai.types import Content, FunctionCall, Part

import everturn
from everturn.adapters.google_adk import EverturnSessionService

OF = {"user_id": "ann", "session_id": "42"}


class Scripted(BaseLlm):
    """Calls the tool when a question mentions an order; answers with what it has seen when it has the result."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        seen = len(llm_request.contents)
        last = (llm_request.contents[-1].parts or [Part()])[-1]
        if last.function_response is not None:
            answer = Part(text=f"It is {(last.function_response.response or {})['result']} (seen {seen})")
        elif "order" in (last.text or ""):
            answer = Part(function_call=FunctionCall(name="track", args={"order": 1234}))
        else:
            first = (llm_request.contents[0].parts or [Part()])[0]
            answer = Part(text=f"You began with {first.text!r} (seen {seen})")
        yield LlmResponse(content=Content(role="model", parts=[answer]))


def track(order: int, tool_context: ToolContext) -> str:
    """Where an order is."""
    tool_context.state["order"] = order
    tool_context.state["user:tracked"] = tool_context.state.get("user:tracked", 0) + 1
    tool_context.state["temp:seen"] = "gone with this invocation"
    return f"in Bern with {order}"


def runner(service: EverturnSessionService) -> Runner:
    agent = LlmAgent(name="orders", model=Scripted(model="scripted"), tools=[track], output_key="answer")
    return Runner(app_name="shop", agent=agent, session_service=service, auto_create_session=True)


async def ask(running: Runner, question: str, run_config: RunConfig | None = None) -> str:
    answer = ""
    message = Content(role="user", parts=[Part(text=question)])
    async for event in running.run_async(new_message=message, run_config=run_config, **OF):
        if event.is_final_response() and event.content and event.content.parts:
            answer = event.content.parts[0].text or ""
    return answer


async def main(url: str, question: str) -> None:
    async with await everturn.open_async(url) as store:
        service = EverturnSessionService(store)
        answer = await ask(runner(service), question)
        session = await service.get_session(app_name="shop", **OF)
        assert session is not None
        print(json.dumps({"answer": answer, "session": session.model_dump(mode="json", exclude_none=True)}))
