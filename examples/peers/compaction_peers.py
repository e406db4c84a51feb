"""OpenAI Agents' compaction session, as targets: everturn check examples.peers.compaction_peers:manual.

`manual` calls `run_compaction`, `automatic` is a run of an agent, which compacts at its end. Each in both modes: the
model is given the items, or the id of a response whose items the server has. The kit's model stands in for the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, SQLiteSession, Usage
from agents.memory import OpenAIResponsesCompactionSession
from agents.tracing import set_tracing_disabled
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

Summarize = Callable[[list[Any]], str]


class Server(Model, ModelProvider):
    """The server of OpenAI as far as it matters here: it answers, remembers what it was asked, and compacts."""

    def __init__(self, summarize: Summarize) -> None:
        self.responses = self  # client.responses.compact
        self._summarize = summarize
        self._asked: dict[str, Any] = {}

    def get_model(self, model_name: str | None) -> Model:  # noqa: ARG002 - the SDK calls it so
        return self

    def remember(self, items: list[Any]) -> str:
        response_id = f"resp_{len(self._asked) + 1}"
        self._asked[response_id] = list(items)
        return response_id

    async def compact(self, *, input: Any = None, previous_response_id: str = "", **_: Any) -> Any:  # noqa: A002
        items = input if input is not None else self._asked[previous_response_id]
        text = await asyncio.to_thread(self._summarize, items)
        return SimpleNamespace(output=[{"role": "assistant", "content": text}], usage=None)

    async def get_response(self, *_: Any, input: Any, **__: Any) -> ModelResponse:  # noqa: A002
        content = [ResponseOutputText(annotations=[], text="yes", type="output_text")]
        answer = ResponseOutputMessage(
            id="msg_1", content=content, role="assistant", status="completed", type="message"
        )
        return ModelResponse([answer], Usage(), self.remember(input))

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Manual:
    """The session, and a `run_compaction` that the application calls."""

    def __init__(self, where: Path, session_id: str, summarize: Summarize, mode: Any) -> None:
        set_tracing_disabled(disabled=True)
        self._mode = mode
        self._server = Server(summarize)
        self._stored = SQLiteSession(session_id, where / "agents.db")
        self._session = OpenAIResponsesCompactionSession(
            session_id,
            self._stored,
            client=self._server,  # type: ignore[arg-type]  # it has what the session calls
            compaction_mode=mode,
            should_trigger_compaction=lambda _: True,
        )
        self.add_items = self._session.add_items
        self.get_items = self._session.get_items
        self.pop_item = self._session.pop_item
        self.clear_session = self._session.clear_session
        self.close = self._stored.close

    async def run_compaction(self, _args: Any = None) -> None:
        """Compact, with the latest response of a model that was given the whole history."""
        response_id = self._server.remember(await self._session.get_items())
        await self._session.run_compaction({"response_id": response_id, "force": True})


class Automatic(Manual):
    """The session in a run of an agent, which compacts at its end."""

    async def run_compaction(self, _args: Any = None) -> None:
        config = RunConfig(model_provider=self._server)
        await Runner.run(Agent(name="kit"), "is that so?", session=self._session, run_config=config)


def manual(where: Path, session_id: str, summarize: Summarize) -> Any:
    return Manual(where, session_id, summarize, "input")


def manual_by_response(where: Path, session_id: str, summarize: Summarize) -> Any:
    return Manual(where, session_id, summarize, "previous_response_id")


def automatic(where: Path, session_id: str, summarize: Summarize) -> Any:
    return Automatic(where, session_id, summarize, "input")


def automatic_by_response(where: Path, session_id: str, summarize: Summarize) -> Any:
    return Automatic(where, session_id, summarize, "previous_response_id")
