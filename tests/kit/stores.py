"""Small targets for the tests of the kit: sound, broken, slow, strange. Imported by its workers, by name."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import everturn
from tests.mutants.sound.memory import AwaitedLists, LockedLists


class Unlocked(LockedLists):
    """Reads, then writes, without a lock."""

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        history = list(self.sessions.get(session_id, []))
        history.extend(messages)
        self.sessions[session_id] = history


def unlocked(where: Path) -> Unlocked:
    return Unlocked()


unlocked.processes = False  # type: ignore[attr-defined]
unlocked.share_threads = True  # type: ignore[attr-defined]


class ReadsThenWrites:
    """The same over a SQLite file, for processes."""

    def __init__(self, where: Path) -> None:
        self.db = sqlite3.connect(where / "memory.db", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS t (session TEXT PRIMARY KEY, words TEXT)")

    def add_message(self, session_id: str, role: str, content: str) -> None:
        words = [*self.words(session_id), content]
        self.db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (session_id, "\n".join(words)))

    def words(self, session_id: str) -> list[str]:
        row = self.db.execute("SELECT words FROM t WHERE session = ?", (session_id,)).fetchone()
        return row[0].split("\n") if row else []

    def get_conversation(self, session_id: str) -> list[tuple[str, str]]:
        return [("user", content) for content in self.words(session_id)]

    def close(self) -> None:
        self.db.close()


def reads_then_writes(where: Path) -> ReadsThenWrites:
    return ReadsThenWrites(where)


@contextmanager
def in_a_block(where: Path) -> Iterator[LockedLists]:
    (where / "entered").touch()
    yield LockedLists()
    (where / "left").touch()


in_a_block.processes = False  # type: ignore[attr-defined]


@asynccontextmanager
async def in_an_awaited_block(where: Path) -> Any:
    yield AwaitedLists()


in_an_awaited_block.processes = False  # type: ignore[attr-defined]


class NeverAwaits:
    """Awaited by its shape only: no call is ever at an await. One message at a time."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[Any]] = {}

    async def add_message(self, session_id: str, role: str, content: str) -> None:
        self.sessions.setdefault(session_id, []).append((role, content))

    async def get_conversation(self, session_id: str) -> list[Any]:
        return list(self.sessions.get(session_id, []))

    async def clear(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)


def never_awaits(where: Path) -> NeverAwaits:
    return NeverAwaits()


never_awaits.processes = False  # type: ignore[attr-defined]


def shapeless(where: Path) -> object:
    return object()


def never_opens(where: Path) -> object:
    raise RuntimeError("no such luck")


def asks_for_too_much(where: Path, password: str) -> object:
    return object()


def asks_for_all(
    where: Path, session_id: str, redis_url: str, ttl: float = 1, timeout: float = 1, colour: str = "red"
) -> object:
    return object()


asks_for_all.corrupt = print  # type: ignore[attr-defined]


class Hanging(LockedLists):
    def get_history(self, session_id: str) -> list[Any]:
        time.sleep(600)
        return []


def hanging(where: Path) -> Hanging:
    return Hanging()


hanging.processes = False  # type: ignore[attr-defined]


class Dying(LockedLists):
    def get_history(self, session_id: str) -> list[Any]:
        os._exit(3)


def dying(where: Path) -> Dying:
    return Dying()


dying.processes = False  # type: ignore[attr-defined]


class Refusing(LockedLists):
    """Acknowledges nothing: every write is an error, so nothing can be shown about concurrent ones."""

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        raise OSError("not now")


def refusing(where: Path) -> Refusing:
    return Refusing()


refusing.processes = False  # type: ignore[attr-defined]
refusing.share_threads = True  # type: ignore[attr-defined]


def late_at_first(where: Path, redis_url: str, timeout: float | None = None) -> Any:
    """Sound, on a machine that is so busy that no store opens in half a second at its first try."""
    if timeout is not None:
        tries = where / "tries"
        tries.touch()
        with tries.open("r+") as file:
            number = len(file.read())
            file.write("x")
        if number % 2 == 0:
            time.sleep(timeout)
            raise TimeoutError("the time is up")
    return everturn.open(redis_url, namespace=where.name, warnings=False, timeout=timeout or 10)


class OneReader:
    """Keeps all, and lets nobody read but the process that wrote first."""

    def __init__(self, store: Any, where: Path) -> None:
        self._store = store
        self._writer = where / "writer"

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self._store.add_messages(session_id, messages)
        if not self._writer.exists():
            self._writer.write_text(str(os.getpid()))

    def get_history(self, session_id: str) -> list[Any]:
        if self._writer.exists() and self._writer.read_text() != str(os.getpid()):
            raise OSError("not for you")
        return list(self._store.get_history(session_id))

    def close(self) -> None:
        self._store.close()


def one_reader(where: Path, redis_url: str, timeout: float | None = None) -> OneReader:
    store = everturn.open(redis_url, namespace=where.name, warnings=False, timeout=timeout or 10)
    return OneReader(store, where)
