"""Writers that go on whatever happens, and the check that nothing they were told was a lie."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import everturn
from everturn import ChatMessage, MemoryStoreBackendError

TURN = 2  # messages


class Ledger:
    """What the writers were told: turns acknowledged, and turns in doubt."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, str]] = []
        self.doubtful: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []

    def check(self, store: Any, *, retry_doubtful: bool = True) -> None:
        """Every acknowledged turn is there once, in one piece; a doubtful one, retried with its key, is there once."""
        assert self.acknowledged
        for session_id, key in self.doubtful if retry_doubtful else ():
            store.add_messages(session_id, turn(key), key=key)
        for session_id, key in self.acknowledged:
            assert store.add_messages(session_id, turn(key), key=key).replayed
        wanted = self.acknowledged + (self.doubtful if retry_doubtful else [])
        for session_id in {session_id for session_id, _ in wanted}:
            texts = [message.content for message in store.get_history(session_id)]
            counts = Counter(texts[::TURN])
            assert texts[::TURN] == texts[1::TURN], "a turn was torn"
            assert set(counts.values()) == {1}, "a turn is there twice"
            assert {key for owner, key in wanted if owner == session_id} <= set(counts)
        assert store.verify().ok


def turn(key: str) -> list[ChatMessage]:
    return [ChatMessage("user", key), ChatMessage("assistant", key)]


class Threads:
    """Blocking writers, each in a thread, until told to stop."""

    def __init__(self, store: Any, ledger: Ledger, count: int = 4) -> None:
        self._store = store
        self._ledger = ledger
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            session_id, key = f"s{number % 3}", f"{writer}-{number}"
            try:
                self._store.add_messages(session_id, turn(key), key=key)
            except MemoryStoreBackendError as exc:
                self._ledger.errors.append(exc)
                kept = self._ledger.doubtful if exc.outcome == "unknown" else self._ledger.refused
                kept.append((session_id, key))
                time.sleep(0.02)
            else:
                self._ledger.acknowledged.append((session_id, key))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Tasks:
    """The same in an event loop, which runs in a thread of its own."""

    def __init__(self, url: str, ledger: Ledger, count: int = 16, **options: Any) -> None:
        self._ledger = ledger
        self._stop = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(url, count, options)))
        self._thread.start()
        assert self._started.wait(30)

    async def _run(self, url: str, count: int, options: dict[str, Any]) -> None:
        async with await everturn.open_async(url, **options) as store:
            self._started.set()
            await asyncio.gather(*(self._write(store, number) for number in range(count)))

    async def _write(self, store: everturn.AsyncMemoryStore, writer: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            session_id, key = f"a{number % 5}", f"{writer}-{number}"
            try:
                await store.add_messages(session_id, turn(key), key=key)
            except MemoryStoreBackendError as exc:
                self._ledger.errors.append(exc)
                kept = self._ledger.doubtful if exc.outcome == "unknown" else self._ledger.refused
                kept.append((session_id, key))
                await asyncio.sleep(0.02)
            else:
                self._ledger.acknowledged.append((session_id, key))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
