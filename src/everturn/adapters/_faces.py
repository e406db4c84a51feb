"""A store's methods for frameworks that await, or do not, whichever face the store has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ParamSpec, TypeVar

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore, Unsupported

P = ParamSpec("P")
T = TypeVar("T")


class Awaited:
    """The methods of a store, awaited. A blocking store works in a thread, so that the event loop goes on."""

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        if not isinstance(store, MemoryStore | AsyncMemoryStore):
            raise InvalidInput(f"is a store of everturn.open or open_async, not {type(store).__name__}", path="store")
        self._store = store

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method. A cancelled caller waits until what it sent has settled, as with an asynchronous store."""
        call: Callable[..., Any] = getattr(self._store, method)
        if isinstance(self._store, AsyncMemoryStore):
            return await call(*args, **kwargs)
        return await in_thread(call, *args, **kwargs)


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread, so that the event loop goes on. A cancelled caller waits until it has settled."""
    sent = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        await asyncio.wait([sent])
        raise


def require(package: str, oldest: tuple[int, ...], adapter: str) -> None:
    """Raises Unsupported, saying what to install, if a framework is not here or too old."""
    advice = f'pip install "everturn[{adapter}]"'
    name = f"everturn.adapters.{adapter.replace('-', '_')}"
    try:
        found = version(package)
    except PackageNotFoundError as exc:
        raise Unsupported(f"{name} needs {package}, which is not installed: {advice}") from exc
    if tuple(map(int, re.findall(r"\d+", found)[: len(oldest)])) < oldest:
        wanted = ".".join(map(str, oldest))
        raise Unsupported(f"{name} needs {package} {wanted} or newer, and {found} is installed: {advice}")
