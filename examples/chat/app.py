"""A chat endpoint that survives retries and crashes: FastAPI, any number of workers, a fake model.

    uvicorn app:app --workers 4
    curl -X POST localhost:8000/chats/customer-42 -H 'Idempotency-Key: request-1' \
         -H 'Content-Type: application/json' -d '{"text": "My order is 1234."}'

Send the request again with the same key, to any worker, after any crash: the question is stored once, and the answer is
the first one.
"""

from __future__ import annotations

import os
import random
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, HTTPException

from everturn import AsyncMemoryStore, ChatMessage, KeyReused, Turn, VersionConflict
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan

app = FastAPI(
    lifespan=store_lifespan(os.environ.get("CHAT_STORE", "sqlite:///chat.db")), exception_handlers=STORE_ERRORS
)
Store = Annotated[AsyncMemoryStore, Depends(get_store)]
ATTEMPTS = 5  # to answer a conversation that others change meanwhile
MAX_TOKENS = 8000  # of the history; leave room for the question and the answer


async def ask_model(messages: list[ChatMessage]) -> str:
    """Stand in for a model: it never answers twice in the same words. Put yours here (and `to_prompt()`)."""
    return f"You said: {messages[-1].content} (answer {random.randrange(10**9)})"


@app.post("/chats/{chat}")
async def chat(
    chat: str, text: Annotated[str, Body(embed=True)], idempotency_key: Annotated[str, Header()], store: Store
) -> dict[str, str]:
    """Answer a message. The client makes a new key for each one, and repeats the request with it until this returns."""
    question = ChatMessage("user", text)
    for _ in range(ATTEMPTS):
        if (turn := await store.get_turn(chat, idempotency_key)) is not None:
            return {"answer": first_answer(turn, text)}  # an earlier attempt was stored; its answer stands
        context = await store.get_context(chat, max_tokens=MAX_TOKENS)
        answer = await ask_model([*context.messages, question])
        try:
            messages = [question, ChatMessage("assistant", answer)]
            await store.add_messages(chat, messages, key=idempotency_key, expected_version=context)
        except (VersionConflict, KeyReused):
            continue  # somebody else's turn came first, or another attempt at this one: look again
        return {"answer": answer}
    raise HTTPException(409, "others are writing to this chat; try again")


def first_answer(turn: Turn, text: str) -> str:
    """Return the answer of an earlier attempt. Raises 409 if that was to another question: the key was used twice."""
    question, answer = turn.messages
    if question.content != text:
        raise HTTPException(409, "this Idempotency-Key was used for another message")
    return str(answer.content)
