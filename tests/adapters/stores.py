"""Stores for adapter tests: blocking and asynchronous in turn, watched, and as the contract kit opens them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import everturn
from everturn import MemoryStore


def over_both_stores(tmp_path: Path, story: Callable[[Any], Awaitable[None]]) -> None:
    """Run the story over a blocking store and over an asynchronous one."""

    async def run() -> None:
        with everturn.open(f"sqlite:///{tmp_path / 'blocking.db'}") as store:
            await story(store)
        async with await everturn.open_async(f"sqlite:///{tmp_path / 'awaited.db'}") as store:
            await story(store)

    asyncio.run(run())


class WatchedStore:
    """An adapter's AsyncMemoryStore whose calls go through `watch(method, call)`; `call` is the coroutine to await."""

    def __init__(self, store: Any, watch: Callable[[str, Coroutine[Any, Any, Any]], Awaitable[Any]]) -> None:
        self._store = store
        self._watch = watch

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return lambda *args, **kwargs: self._watch(name, getattr(self._store, name)(*args, **kwargs))


def in_a_file(where: Path, **options: Any) -> MemoryStore:
    """With those of the kit's options that it gave: the others are None."""
    return everturn.open(file_url(where), **given(options))


def on_a_server(where: Path, redis_url: str, **options: Any) -> MemoryStore:
    """The same, in a namespace that is the target's own: the kit has many on one server."""
    return everturn.open(redis_url, namespace=namespace_of(where), **given(options))


def at_dynamodb(on_valkey: Callable[..., Any]) -> Callable[..., Any]:
    """Make the factory of the same target on DynamoDB, of that on Valkey: it gets a stand-in of the kit's."""
    told = inspect.signature(on_valkey)

    def on_dynamodb(where: Path, *, dynamodb_endpoint: str, **options: Any) -> Any:
        url = f"dynamodb://everturn?region=us-east-1&create=true&endpoint={dynamodb_endpoint}"
        return on_valkey(where, redis_url=url, **options)

    named = [
        parameter.replace(name="dynamodb_endpoint") if parameter.name == "redis_url" else parameter
        for parameter in told.parameters.values()
    ]
    on_dynamodb.__signature__ = told.replace(parameters=named)  # type: ignore[attr-defined]  # what a factory offers
    on_dynamodb.__dict__ |= {
        name: vars(on_valkey)[name] for name in ("share_threads", "pays_once") if name in vars(on_valkey)
    }
    return on_dynamodb


def file_url(where: Path) -> str:
    return f"sqlite:///{where}/memory.db"


def namespace_of(where: Path) -> str:
    return sha256(str(where).encode()).hexdigest()[:16]


def given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
