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

from everturn import AsyncMemoryStore, ChatMessage, KeyReused, Receipt, SessionNotFound, VersionConflict
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan

app = FastAPI(
    lifespan=store_lifespan(os.environ.get("CHAT_STORE", "sqlite:///memory.db")), exception_handlers=STORE_ERRORS
)
Store = Annotated[AsyncMemoryStore, Depends(get_store)]
ATTEMPTS = 5  # to answer a conversation that others change meanwhile


async def ask_model(messages: list[ChatMessage]) -> str:
    """Stand in for a model: it never answers twice in the same words. Put yours here."""
    return f"You said: {messages[-1].content} (answer {random.randrange(10**9)})"


@app.post("/chats/{chat}")
async def chat(
    chat: str, text: Annotated[str, Body(embed=True)], idempotency_key: Annotated[str, Header()], store: Store
) -> dict[str, str]:
    """Answer a message. The client makes a new key for each one, and repeats the request with it until this returns."""
    for _ in range(ATTEMPTS):
        version, history = await read(store, chat)
        question = ChatMessage("user", text)
        answer = await ask_model([*history, question])
        turn = [question, ChatMessage("assistant", answer)]
        try:
            await store.add_messages(chat, turn, key=idempotency_key, expected_version=version)
        except VersionConflict:
            continue  # somebody else's turn came first: read it, and ask again
        except KeyReused as reused:  # an earlier attempt was stored; its answer stands
            return {"answer": await first_answer(store, reused.receipt, text)}
        return {"answer": answer}
    raise HTTPException(409, "others are writing to this chat; try again")


async def read(store: AsyncMemoryStore, chat: str) -> tuple[int, list[ChatMessage]]:
    """Read the latest messages, and a version that is no newer than they are."""
    try:
        version = (await store.info(chat)).version
    except SessionNotFound:
        version = 0
    return version, await store.get_history(chat, limit=40, heal=True)


async def first_answer(store: AsyncMemoryStore, receipt: Receipt, text: str) -> str:
    """Read the answer of an earlier attempt. Raises 409 if that was to another question: the key was used twice."""
    first, last = receipt.seqs[0], receipt.seqs[-1]
    question, answer = await store.get_history(receipt.session_id, at=receipt.version, after=first - 1, before=last + 1)
    if question.content != text:
        raise HTTPException(409, "this Idempotency-Key was used for another message")
    return str(answer.content)
