"""One process of a conversation with a real Runner and a scripted model: the question is in the arguments."""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.tracing import set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import everturn
from everturn.adapters.openai_agents import EverturnSession


class Scripted(Model):
    """Calls the tool when a question mentions an order, twice at once if it mentions several; answers with what it has
    seen when it has the result."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        last = input[-1]
        count = len(input)
        if last.get("type") == "function_call_output":
            text = f"It is {last['output']} (seen {count})"
        elif "order" in str(last.get("content")):
            orders = [1234, 5678] if "orders" in last["content"] else [1234]
            calls: list[Any] = [
                ResponseFunctionToolCall(
                    id=f"fc_{count}_{order}",
                    call_id=f"c_{count}_{order}",
                    name="track",
                    arguments=json.dumps({"order": order}),
                    type="function_call",
                )
                for order in orders
            ]
            return ModelResponse(calls, Usage(), f"resp_{count}")
        else:
            first = next(item["content"] for item in input if item.get("role") == "user")
            text = f"You began with {first!r} (seen {count})"
        content = [ResponseOutputText(annotations=[], text=text, type="output_text")]
        message = ResponseOutputMessage(
            id=f"msg_{count}", content=content, role="assistant", status="completed", type="message"
        )
        return ModelResponse([message], Usage(), f"resp_{count}")

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Provider(ModelProvider):
    def get_model(self, model_name: str | None) -> Model:
        return Scripted()


@function_tool
def track(order: int) -> str:
    """Where an order is."""
    return f"in Bern with {order}"


async def main(url: str, question: str) -> None:
    set_tracing_disabled(disabled=True)
    async with await everturn.open_async(url) as store:
        agent = Agent(name="orders", tools=[track])
        session = EverturnSession("customer-42", store)
        result = await Runner.run(agent, question, session=session, run_config=RunConfig(model_provider=Provider()))
        print(json.dumps({"answer": result.final_output, "items": await session.get_items()}))
