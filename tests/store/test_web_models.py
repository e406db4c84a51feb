"""Messages inside Pydantic models and FastAPI bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, TypeAdapter, ValidationError

import everturn
from everturn import ChatMessage
from tests.store.speech import user


class Prompt(BaseModel):
    session_id: str
    messages: list[ChatMessage]


FULL = {
    "role": "assistant",
    "content": [{"type": "text", "text": "hi"}],
    "name": "bot",
    "tool_calls": [{"id": "c1"}],
    "tool_call_id": "c0",
    "id": "m1",
    "metadata": {"k": [1, None]},
    "unknown": {"kept": True},
}


def test_a_model_holds_messages() -> None:
    assert Prompt(session_id="a", messages=[user("hi")]).messages == [user("hi")]


def test_a_model_makes_messages_of_dicts_and_json() -> None:
    from_dict = Prompt.model_validate({"session_id": "a", "messages": [FULL]})
    from_json = Prompt.model_validate_json(json.dumps({"session_id": "a", "messages": [FULL]}))
    assert from_dict.messages == from_json.messages == [ChatMessage.from_dict(FULL)]
    assert from_json.messages[0].extra == {"unknown": {"kept": True}}


def test_a_model_dumps_what_it_took() -> None:
    prompt = Prompt(session_id="a", messages=[ChatMessage.from_dict(FULL)])
    assert prompt.model_dump()["messages"] == [FULL]
    assert json.loads(prompt.model_dump_json())["messages"] == [FULL]


def test_a_message_from_a_store_is_dumped_without_the_stores_marks() -> None:
    with everturn.open("sqlite://") as store:
        store.add_messages("a", [user("hi")])
        prompt = Prompt(session_id="a", messages=store.get_history("a"))
    assert prompt.model_dump()["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "x"},
        {"role": "user"},
        {"role": "", "content": "x"},
        {"role": 7, "content": "x"},
        {"role": "user", "content": 7},
        {"role": "user", "content": {"a": 1}},
        {"role": "user", "content": "x", "tool_calls": "c1"},
        {"role": "user", "content": "x", "metadata": [1]},
        "hello",
        None,
    ],
)
def test_a_model_refuses_what_is_no_message(fields: Any) -> None:
    with pytest.raises(ValidationError):
        Prompt.model_validate({"session_id": "a", "messages": [fields]})


def test_a_model_that_took_a_message_has_one_the_store_takes() -> None:
    with everturn.open("sqlite://") as store:
        store.add_messages("a", Prompt.model_validate({"session_id": "a", "messages": [FULL]}).messages)
        assert store.get_history("a")[0].to_dict() == FULL


def test_messages_have_a_json_schema() -> None:
    schema = TypeAdapter(ChatMessage).json_schema()
    assert set(schema["required"]) == {"role", "content"}
    assert {"role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata"} <= set(schema["properties"])


@pytest.fixture
def client(tmp_path: Any) -> Any:
    app = FastAPI()
    store = everturn.open(f"sqlite:///{tmp_path}/memory.db")

    @app.post("/say")
    def say(prompt: Prompt) -> dict[str, int]:
        return {"version": store.add_messages(prompt.session_id, prompt.messages).version}

    @app.get("/history/{session_id}")
    def history(session_id: str) -> list[ChatMessage]:
        return store.get_history(session_id)

    with store, TestClient(app) as client:
        yield client


def test_fastapi_takes_messages_in_a_body_and_gives_them_back(client: Any) -> None:
    assert client.post("/say", json={"session_id": "a", "messages": [FULL]}).json() == {"version": 1}
    assert client.get("/history/a").json() == [FULL]


def test_fastapi_names_the_field_that_is_wrong(client: Any) -> None:
    answer = client.post("/say", json={"session_id": "a", "messages": [{"role": "user"}]})
    assert answer.status_code == 422
    assert "content" in answer.text


def test_fastapi_describes_messages_in_its_schema(client: Any) -> None:
    assert client.get("/openapi.json").status_code == 200
