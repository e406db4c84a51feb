"""What a place is: one backend behind one face, opened so that one plain test body drives them all; and its editor.

What the backends are is in the modules beside this one.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import everturn


class LoopThread:
    """An event loop in a thread of its own, so that a test can wait for a coroutine without being one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="contract-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
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
        if name == "lease":
            return self._lease
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            given = {key: value.lease if isinstance(value, AwaitedLease) else value for key, value in kwargs.items()}
            return self._loop_thread.run(found(*args, **given))

        return call

    def _lease(self, *args: Any, **kwargs: Any) -> AwaitedLease:
        async def take() -> everturn.AsyncLease:
            return await self._store.lease(*args, **kwargs)

        return AwaitedLease(self._loop_thread.run(take()), self._loop_thread)


class AwaitedLease:
    """An AsyncLease that is used like a Lease: every call is awaited in the loop's thread."""

    def __init__(self, lease: everturn.AsyncLease, loop: LoopThread) -> None:
        self.lease = lease
        self._loop_thread = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.lease, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._loop_thread.run(found(*args, **kwargs))

    def __enter__(self) -> Self:
        self._loop_thread.run(self.lease.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop_thread.run(self.lease.__aexit__(*error))


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Stored:
    """An entry as it is stored."""

    kind: str
    body: bytes
    checksum: int
    turn: int = 0
    created_at: float = 0.0


class Editor(Protocol):
    """The editor of a place: looks at what is stored, and damages it, behind the store's back.

    The documented stored form is all it goes by. Sessions are those of the namespace "", with plain names.
    """

    def entry(self, session_id: str, seq: int) -> Stored: ...

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        """Write over the entry, or in its place if it was dropped. What a backend cannot hold it gets escaped."""

    def drop_entry(self, session_id: str, seq: int) -> None: ...

    def drop_log(self, session_id: str) -> None:
        """Every entry goes; the session still points to them."""

    def drop_session(self, session_id: str) -> None:
        """What says that there is a session goes; its entries stay."""

    def drop_change(self, session_id: str, version: int) -> None: ...

    def set_state(self, session_id: str, **fields: int) -> None:
        """Of head, cleared, floor, messages and last_seq those that are named."""

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        """Let `seq` follow `after`, whatever it followed before."""

    def move_snapshots(self, session_id: str, head: int) -> None: ...

    def move_undo_steps(self, session_id: str, head: int) -> None: ...

    def entries(self) -> int:
        """How many are stored, of all sessions, the expired ones included."""

    def remnants(self, *markers: str) -> dict[str, int]:
        """How often each marker is found in what is stored, in whatever part of it; those that are not are left out."""

    def size(self) -> int:
        """The bytes that the backend takes for all of it, once it has done its own housekeeping."""

    def reader(self) -> AbstractContextManager[Callable[[str], bool]]:
        """Another client in the middle of a read transaction, where a backend has such: does it see this text?"""


class Place:
    """One backend behind one face. `open` gives a store; all of them are closed when the test ends."""

    # What it can do. Tests that need something say so: @where(...); what it cannot do then has a test of its own.
    blocking = True  # the face; else asynchronous
    reopens = True  # what was stored can be opened again, and has an editor
    shared = True  # also by another process
    finds_everywhere = True  # find over all sessions
    orders_by_change = True  # sessions(order="recent")
    keeps_the_expired = True  # until writers and compact come by; else the backend sees to it
    writers_reap = True  # what has expired, a step at a time; else only compact does
    has_readers = True  # whose transactions may need what was erased
    erases_by_age = True  # erase_all(changed_before=...)
    far = False  # a network lies between, which may keep a request that was given up
    keeps_names = False  # of what was erased, for as long as a request under way may live: it names the tombstone
    notices_kinds = True  # that were changed, in reads of a part of a history too
    examples = 60  # how many of its own a test that makes them up may try

    def __init__(self, folder: Path, loop: LoopThread, servers: Any) -> None:
        self.folder = folder
        self.loop = loop
        self.servers = servers
        self._opened: list[Any] = []

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def editor(self) -> Editor:
        raise NotImplementedError

    def open(self, **options: Any) -> Any:
        store = self._open(**options) if self.blocking else self.loop.run(self._awaited(**options))
        self._opened.append(store)
        return store

    def _open(self, **options: Any) -> Any:
        return everturn.open(self.url, **options)

    async def _awaited(self, **options: Any) -> Any:
        return Awaited(await self._open_async(**options), self.loop)

    async def _open_async(self, **options: Any) -> Any:
        return await everturn.open_async(self.url, **options)

    def set_clock(self, store: Any, clock: Callable[[], float]) -> None:
        """Let the store see this time of day from now on."""
        store._operations.backend._clock = clock

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
