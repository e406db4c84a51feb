"""Events for the tests here, and stores to tell them to: blocking and awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.genai.types import (
    Blob,
    Content,
    FinishReason,
    FunctionCall,
    FunctionResponse,
    GenerateContentResponseUsageMetadata,
    Part,
)

from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.stores import over_both_stores

OF: dict[str, Any] = {"app_name": "shop", "user_id": "ann", "session_id": "1"}

Story = Callable[[EverturnSessionService], Awaitable[None]]


def tell(story: Story, tmp_path: Path) -> None:
    """Run the story over a blocking store and over an asynchronous one."""
    over_both_stores(tmp_path, lambda store: story(EverturnSessionService(store)))


def say(text: str, *, author: str = "user", state: dict[str, Any] | None = None, **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = Content(role=role, parts=[Part(text=text)])
    return Event(author=author, content=content, actions=EventActions(state_delta=state or {}), **fields)


async def loaded(service: EverturnSessionService, **of: Any) -> Session:
    session = await service.get_session(**(of or OF))
    assert session is not None
    return session


def texts(session: Session) -> list[str]:
    return [part.text or "" for event in session.events if event.content for part in event.content.parts or ()]


CONVERSATION = [
    say("Where are orders 1 and 2?", invocation_id="e-1"),
    Event(
        author="orders",
        invocation_id="e-1",
        branch="orders",
        content=Content(
            role="model",
            parts=[
                Part(text="Both, I think.", thought=True, thought_signature=b"\x00\xff"),
                Part(text="Let me look."),
                Part(function_call=FunctionCall(id="c1", name="track", args={"order": 1})),
                Part(function_call=FunctionCall(id="c2", name="track", args={"order": 2.0, "why": None})),
            ],
        ),
        usage_metadata=GenerateContentResponseUsageMetadata(prompt_token_count=7),
        finish_reason=FinishReason.STOP,
        long_running_tool_ids={"c2", "c1"},
    ),
    Event(
        author="orders",
        invocation_id="e-1",
        content=Content(
            role="user",
            parts=[
                Part(function_response=FunctionResponse(id="c1", name="track", response={"result": "in Bern"})),
                Part(function_response=FunctionResponse(id="c2", name="track", response={"at": "sea", "days": 3})),
            ],
        ),
    ),
    say("One is in Bern, one at sea.", author="orders", invocation_id="e-1", model_version="scripted-1"),
    Event(
        author="user",
        content=Content(
            role="user", parts=[Part(text="This one:"), Part(inline_data=Blob(data=b"\x89P", mime_type="image/png"))]
        ),
    ),
    Event(author="orders", actions=EventActions(transfer_to_agent="returns", artifact_delta={"label.pdf": 2})),
]
