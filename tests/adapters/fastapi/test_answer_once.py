"""A retry gets the first answer; another question under the same key is a clash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Body, Depends, FastAPI, Header
from fastapi.testclient import TestClient

import everturn
from everturn import AsyncMemoryStore, ChatMessage, VersionConflict
from everturn.adapters.fastapi import STORE_ERRORS, answer_once, get_store, store_lifespan

Store = Annotated[AsyncMemoryStore, Depends(get_store)]


class Model:
    """Never answers twice in the same words. `asked` has the prompts."""

    def __init__(self) -> None:
        self.asked: list[list[ChatMessage]] = []
        self.numbers = count(1)

    async def __call__(self, messages: list[ChatMessage]) -> ChatMessage:
        self.asked.append(messages)
        return ChatMessage("assistant", f"answer {next(self.numbers)}")


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def client(tmp_path: Path, model: Model) -> Iterator[TestClient]:
    app = FastAPI(lifespan=store_lifespan(f"sqlite:///{tmp_path}/chat.db"), exception_handlers=STORE_ERRORS)

    @app.post("/{chat}")
    async def chat(
        chat: str, question: Annotated[ChatMessage, Body()], idempotency_key: Annotated[str, Header()], store: Store
    ) -> Any:
        return (await answer_once(store, chat, question, model, key=idempotency_key, max_messages=3)).to_dict()

    with TestClient(app) as made:
        yield made


def post(client: TestClient, text: str, key: str) -> tuple[int, Any]:
    response = client.post("/a", json={"role": "user", "content": text}, headers={"Idempotency-Key": key})
    return response.status_code, response.json().get("content", response.json().get("error"))


def test_a_retry_gets_the_first_answer_and_asks_no_model(client: TestClient, model: Model) -> None:
    assert post(client, "hello", "k1") == (200, "answer 1")
    assert post(client, "hello", "k1") == (200, "answer 1")
    assert len(model.asked) == 1


def test_another_question_under_the_same_key_is_a_clash(client: TestClient, model: Model) -> None:
    post(client, "hello", "k1")
    assert post(client, "bye", "k1") == (409, "KeyReused")
    assert post(client, "bye", "k2") == (200, "answer 2")
    assert [message.content for message in model.asked[-1]] == ["hello", "answer 1", "bye"]


def test_attempts_at_once_have_one_answer(tmp_path: Path, model: Model) -> None:
    async def race() -> tuple[list[str], int]:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/race.db") as store:
            question = ChatMessage("user", "hello")
            tries = [answer_once(store, "a", question, model, key="k") for _ in range(8)]
            answers = await asyncio.gather(*tries)
            return [answer.text for answer in answers], len(await store.get_history("a"))

    answers, stored = asyncio.run(race())
    assert (len(set(answers)), stored) == (1, 2)


def test_a_chat_that_others_write_to_all_the_time_is_given_up(tmp_path: Path) -> None:
    async def disturbed() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/busy.db") as store:

            async def ask(_messages: list[ChatMessage]) -> ChatMessage:
                await store.add_messages("a", [ChatMessage("user", "me first")])
                return ChatMessage("assistant", "too late")

            await answer_once(store, "a", ChatMessage("user", "hello"), ask, key="k", attempts=3)

    with pytest.raises(VersionConflict):
        asyncio.run(disturbed())
