"""Where the contract runs: each engine and face, opened so that one plain test body drives them all.

A new engine adds a subclass of Place to ALL (and to LASTING, if what it stores can be opened again).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import everturn


class LoopThread:
    """An event loop in a thread of its own, so that a test can wait for a coroutine without being one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="contract-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float = 20) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Awaited:
    """An AsyncMemoryStore that is called like a MemoryStore: every call is awaited in the loop's thread."""

    def __init__(self, store: everturn.AsyncMemoryStore, loop: LoopThread) -> None:
        self._store = store
        self._loop_thread = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop_thread.run(found(*args, **kwargs))

        return call


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Place:
    """One engine behind one face. `open` gives a store; all of them are closed when the test ends."""

    def __init__(self, folder: Path, loop: LoopThread) -> None:
        self.folder = folder
        self.loop = loop
        self._opened: list[Any] = []

    @property
    def url(self) -> str:
        raise NotImplementedError

    def open(self, **options: Any) -> Any:
        store = self._open(**options)
        self._opened.append(store)
        return store

    def _open(self, **options: Any) -> Any:
        return everturn.open(self.url, **options)

    def set_clock(self, store: Any, clock: Callable[[], float]) -> None:
        """Let the store see this time of day from now on."""
        store._engine.backend._clock = clock

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


class Memory(Place):
    url = "sqlite://"


class File(Place):
    """What is promised here does not hang on the disk's syncs; crash tests judge those. So these stores spare them."""

    def open(self, **options: Any) -> Any:
        return super().open(**{"synchronous": "OFF"} | options)

    @property
    def path(self) -> Path:
        return self.folder / "memory.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"


class AsyncFile(File):
    def _open(self, **options: Any) -> Any:
        return Awaited(self.loop.run(everturn.open_async(self.url, **options)), self.loop)


ALL: dict[str, type[Place]] = {"sqlite-file": File, "sqlite-memory": Memory, "sqlite-async": AsyncFile}
LASTING: dict[str, type[File]] = {"sqlite-file": File, "sqlite-async": AsyncFile}
