"""The application that real workers serve in the tests."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import Body, Depends, FastAPI

from everturn import AsyncMemoryStore, ChatMessage
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan

app = FastAPI(lifespan=store_lifespan(os.environ["EVERTURN_TEST_URL"]), exception_handlers=STORE_ERRORS)
Messages = Annotated[list[ChatMessage], Body()]
Store = Annotated[AsyncMemoryStore, Depends(get_store)]
mounted = FastAPI(exception_handlers=STORE_ERRORS)
app.mount("/mounted", mounted)


@app.post("/sessions/{session_id}/messages")
async def add(session_id: str, messages: Messages, store: Store, key: str | None = None) -> dict[str, object]:
    receipt = await store.add_messages(session_id, messages, key=key)
    return {"version": receipt.version, "replayed": receipt.replayed}


@app.get("/sessions/{session_id}/messages")
async def read(session_id: str, store: Store) -> list[ChatMessage]:
    return await store.get_history(session_id)


@mounted.get("/sessions/{session_id}")
@app.get("/sessions/{session_id}")
async def facts(session_id: str, store: Store) -> dict[str, object]:
    return {"messages": (await store.info(session_id)).messages}


@app.get("/worker")
async def worker(store: Store) -> int:
    return os.getpid()
