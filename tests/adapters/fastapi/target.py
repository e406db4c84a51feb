"""An application as a target of the contract kit: `everturn check tests.adapters.fastapi.target:on_sqlite`.

Each process of the kit serves an application of its own, as a worker does, and asks it by requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI
from fastapi.testclient import TestClient

from everturn import AsyncMemoryStore, ChatMessage
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan
from tests.adapters.stores import at_dynamodb, file_url, given, namespace_of

Store = Annotated[AsyncMemoryStore, Depends(get_store)]
Text = Annotated[str, Body()]
Messages = Annotated[list[ChatMessage], Body()]
MaybeText = Annotated[str | None, Body()]
MaybeNumber = Annotated[int | None, Body()]


def application(url: str, **options: Any) -> FastAPI:
    """Routes as an application writes them. Everything is in the body, since a session's id may be any text."""
    app = FastAPI(lifespan=store_lifespan(url, **options), exception_handlers=STORE_ERRORS)

    @app.post("/add_messages")
    async def add_messages(
        store: Store, session_id: Text, messages: Messages, key: MaybeText = None, expected_version: MaybeNumber = None
    ) -> int:
        return (await store.add_messages(session_id, messages, key=key, expected_version=expected_version)).version

    @app.post("/get_history")
    async def get_history(store: Store, session_id: Text, limit: MaybeNumber = None) -> list[ChatMessage]:
        return await store.get_history(session_id, limit=limit)

    @app.post("/replace")
    async def replace(store: Store, session_id: Text, entries: Messages) -> None:
        await store.replace(session_id, entries)

    @app.post("/trim")
    async def trim(store: Store, session_id: Text, max_messages: Annotated[int, Body()]) -> None:
        await store.trim(session_id, max_messages=max_messages)

    @app.post("/clear")
    async def clear(store: Store, session_id: Annotated[str, Body(embed=True)]) -> None:
        await store.clear(session_id)

    @app.post("/clear_all")
    async def clear_all(store: Store) -> None:
        await store.clear_all()

    @app.post("/undo")
    async def undo(store: Store, session_id: Annotated[str, Body(embed=True)]) -> None:
        await store.undo(session_id)

    @app.post("/save_snapshot")
    async def save_snapshot(store: Store, session_id: Annotated[str, Body(embed=True)]) -> str:
        return (await store.save_snapshot(session_id)).id

    @app.post("/list_snapshots")
    async def list_snapshots(store: Store, session_id: Annotated[str, Body(embed=True)]) -> list[str]:
        return [snapshot.id for snapshot in await store.list_snapshots(session_id)]

    @app.post("/rollback_to_snapshot")
    async def rollback_to_snapshot(store: Store, session_id: Text, snapshot: Text) -> None:
        await store.rollback_to_snapshot(session_id, snapshot)

    @app.post("/delete_snapshot")
    async def delete_snapshot(store: Store, session_id: Text, snapshot: Text) -> None:
        await store.delete_snapshot(session_id, snapshot)

    @app.post("/verify")
    async def verify(store: Store) -> bool:
        return (await store.verify()).ok

    return app


class Refused(Exception):
    """An answer that is an error. `outcome`: what the answer says of it."""

    def __init__(self, code: int, body: dict[str, Any]) -> None:
        super().__init__(f"{code}: {body['detail']}")
        self.outcome = body.get("outcome", "unknown" if code >= 500 else "not_written")


class Client:
    """What such an application is to those who ask it."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def add_messages(
        self, session_id: str, messages: list[Any], key: str | None = None, expected_version: int | None = None
    ) -> SimpleNamespace:
        told = [dict(message) for message in messages]
        more = {"key": key, "expected_version": expected_version}
        return SimpleNamespace(version=self._ask("add_messages", session_id=session_id, messages=told, **more))

    def get_history(self, session_id: str, limit: int | None = None) -> Any:
        return self._ask("get_history", session_id=session_id, limit=limit)

    def replace(self, session_id: str, entries: list[Any]) -> None:
        self._ask("replace", session_id=session_id, entries=[dict(message) for message in entries])

    def trim(self, session_id: str, max_messages: int) -> None:
        self._ask("trim", session_id=session_id, max_messages=max_messages)

    def clear(self, session_id: str) -> None:
        self._ask("clear", session_id=session_id)

    def clear_all(self) -> None:
        self._ask("clear_all")

    def undo(self, session_id: str) -> None:
        self._ask("undo", session_id=session_id)

    def save_snapshot(self, session_id: str) -> Any:
        return self._ask("save_snapshot", session_id=session_id)

    def list_snapshots(self, session_id: str) -> Any:
        return self._ask("list_snapshots", session_id=session_id)

    def rollback_to_snapshot(self, session_id: str, snapshot: str) -> None:
        self._ask("rollback_to_snapshot", session_id=session_id, snapshot=snapshot)

    def delete_snapshot(self, session_id: str, snapshot: str) -> None:
        self._ask("delete_snapshot", session_id=session_id, snapshot=snapshot)

    def verify(self) -> SimpleNamespace:
        return SimpleNamespace(ok=self._ask("verify"))

    def _ask(self, route: str, **body: Any) -> Any:
        text = json.dumps(body, allow_nan=False)
        if json.loads(text) != body:
            raise ValueError("a request is JSON, and this would not arrive as it is")
        answer = self._client.post(f"/{route}", content=text, headers={"content-type": "application/json"})
        if answer.status_code != 200:
            raise Refused(answer.status_code, answer.json())
        return answer.json()


@contextmanager
def _served(url: str, **options: Any) -> Iterator[Client]:
    with TestClient(application(url, **given(options))) as client:
        yield Client(client)


@contextmanager
def on_sqlite(
    where: Path, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None
) -> Iterator[Client]:
    with _served(file_url(where), ttl=ttl, timeout=timeout, vfs=vfs) as client:
        yield client


@contextmanager
def on_valkey(where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None) -> Iterator[Client]:
    with _served(redis_url, namespace=namespace_of(where), ttl=ttl, timeout=timeout) as client:
        yield client


on_sqlite.share_threads = on_valkey.share_threads = True  # type: ignore[attr-defined]  # what a factory offers
on_dynamodb = at_dynamodb(on_valkey)
