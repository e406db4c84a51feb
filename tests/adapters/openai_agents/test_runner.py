"""A real Runner with a scripted model: a conversation with tools across processes, and what a kill leaves of a run."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, function_tool
from agents.tracing import set_tracing_disabled

import everturn
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.checking import ask
from tests.adapters.openai_agents import worker
from tests.adapters.openai_agents.worker import Provider, Scripted
from tests.integration.children import children


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(worker.main, url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert [item.get("type") for item in first["items"]] == [None, "function_call", "function_call_output", "message"]
    second = ask(worker.main, url, "What did I say?")
    assert second["answer"] == "You began with 'Where is my order?' (seen 5)"
    assert second["items"][:4] == first["items"]
    with everturn.open(url) as store:
        roles = [message.role for message in store.get_history("customer-42")]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert store.verify().ok


def test_calls_made_at_once_go_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(worker.main, url, "Where are my orders?")
    assert first["answer"] == "It is in Bern with 5678 (seen 5)"
    kinds = [None, "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    assert [item.get("type") for item in first["items"]] == kinds
    calls = [item["call_id"] for item in first["items"][1:5]]
    assert calls == ["c_1_1234", "c_1_5678"] * 2
    second = ask(worker.main, url, "What did I say?")
    assert second["answer"] == "You began with 'Where are my orders?' (seen 7)"
    assert second["items"][:6] == first["items"]


def ask_and_wait(url: str, where: str) -> None:
    """Ask, in a process of its own that waits at one place to be killed."""

    def reached(place: str) -> None:
        if place == where:
            print("there", flush=True)
            sys.stdin.readline()

    class Waiting(Scripted):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
            reached(f"model, given {len(input)}")
            return await super().get_response(system_instructions, input)

    class Models(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            return Waiting()

    @function_tool
    def track(order: int) -> str:
        reached(f"tool, for {order}")
        return f"in Bern with {order}"

    async def main() -> None:
        set_tracing_disabled(disabled=True)
        async with await everturn.open_async(url) as store:
            agent = Agent(name="orders", tools=[track])
            session = EverturnSession("customer-42", store)
            config = RunConfig(model_provider=Models())
            await Runner.run(agent, "Where are my orders?", session=session, run_config=config)

    asyncio.run(main())


def test_a_run_that_is_killed_leaves_its_input_and_whole_steps(tmp_path: Path) -> None:
    """A step is the model's calls with the results of all of them."""
    step = ["assistant", "assistant", "tool", "tool"]
    left = {
        "model, given 1": ["user"],
        "tool, for 1234": ["user"],
        "tool, for 5678": ["user"],
        "model, given 5": ["user", *step],
    }
    urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(len(left))]
    with children(*((ask_and_wait, url, where) for url, where in zip(urls, left, strict=True))) as processes:
        for process in processes:
            assert process.line() == "there"
            process.kill_all()
            assert process.returncode == -signal.SIGKILL
    for url, roles in zip(urls, left.values(), strict=True):
        with everturn.open(url) as store:
            assert [message.role for message in store.get_history("customer-42")] == roles
            assert store.verify().ok


def test_a_call_that_waits_for_approval_is_stored_without_its_result(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def track(order: int) -> str:
        return f"in Bern with {order}"

    async def main() -> list[list[str]]:
        roles = []
        async with await everturn.open_async(f"sqlite:///{tmp_path / 'memory.db'}") as store:
            session = EverturnSession("customer-42", store)
            agent = Agent(name="orders", tools=[track])
            config = RunConfig(model_provider=Provider(), tracing_disabled=True)
            asked = await Runner.run(agent, "Where is my order?", session=session, run_config=config)
            roles.append([message.role for message in await store.get_history("customer-42")])
            state = asked.to_state()
            state.approve(asked.interruptions[0])
            await Runner.run(agent, state, session=session, run_config=config)
            roles.append([message.role for message in await store.get_history("customer-42")])
        return roles

    before, after = asyncio.run(main())
    assert before == ["user", "assistant"]
    assert after == ["user", "assistant", "tool", "assistant"]
