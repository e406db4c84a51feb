"""Small targets for the tests of the kit: sound, broken, slow, strange. Imported by its workers, by name."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import everturn
from tests.kit.sound.memory import AwaitedLists, LockedLists


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
    """A read-then-write store over a SQLite file, for processes."""

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


class OfObjects(LockedLists):
    """Takes messages with a `text`, and no dicts."""

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        super().add_messages(session_id, [{"role": "user", "content": message.text} for message in messages])


def of_objects(where: Path) -> OfObjects:
    return OfObjects()


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


class ReturnsNone(LockedLists):
    def get_history(self, session_id: str) -> Any:
        return None


def returns_none(where: Path) -> ReturnsNone:
    return ReturnsNone()


returns_none.processes = False  # type: ignore[attr-defined]


class WithoutAnExtra(LockedLists):
    def clear(self, session_id: str) -> None:
        raise ModuleNotFoundError("clear needs numpy: pip install 'store[vectors]'")


def without_an_extra(where: Path) -> WithoutAnExtra:
    return WithoutAnExtra()


without_an_extra.processes = False  # type: ignore[attr-defined]


def forgetful(where: Path) -> LockedLists:
    """A store in memory whose factory does not say so."""
    return LockedLists()


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


# --- all is kept, and not all of it can be read ----------------------------------------------------------------------


class Around:
    """A store of ours, in which a subclass spoils a call or two."""

    def __init__(self, store: Any, where: Path) -> None:
        self._store = store
        self._where = where

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class OneReader(Around):
    """Lets nobody read but the process that wrote first."""

    def __init__(self, store: Any, where: Path) -> None:
        super().__init__(store, where)
        self._writer = where / "writer"

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self._store.add_messages(session_id, messages)
        if not self._writer.exists():
            self._writer.write_text(str(os.getpid()))

    def get_history(self, session_id: str) -> list[Any]:
        if self._writer.exists() and self._writer.read_text() != str(os.getpid()):
            raise OSError("not for you")
        return list(self._store.get_history(session_id))


def one_reader(where: Path, redis_url: str, timeout: float | None = None) -> OneReader:
    store = everturn.open(redis_url, namespace=where.name, warnings=False, timeout=timeout or 10)
    return OneReader(store, where)


def one_reader_of_a_file(where: Path) -> OneReader:
    return OneReader(everturn.open(f"sqlite:///{where}/memory.db"), where)


class Unreadable(Around):
    """Lets nobody read."""

    def get_history(self, session_id: str) -> list[Any]:
        raise OSError("not for you")


def unreadable(where: Path) -> Unreadable:
    return Unreadable(everturn.open(f"sqlite:///{where}/memory.db"), where)


unreadable.share_threads = True  # type: ignore[attr-defined]


class UnreadableInTasks(AwaitedLists):
    async def get_history(self, session_id: str) -> list[Any]:
        raise OSError("not for you")


def unreadable_in_tasks(where: Path) -> UnreadableInTasks:
    return UnreadableInTasks()


unreadable_in_tasks.processes = False  # type: ignore[attr-defined]


class ShyAfterRollback(Around):
    """Lets nobody read between a rollback and the turn that follows."""

    def rollback_to_snapshot(self, session_id: str, snapshot: str) -> None:
        self._store.rollback_to_snapshot(session_id, snapshot)
        (self._where / session_id).touch()

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self._store.add_messages(session_id, messages)
        (self._where / session_id).unlink(missing_ok=True)

    def get_history(self, session_id: str) -> list[Any]:
        if (self._where / session_id).exists():
            raise OSError("not for you")
        return list(self._store.get_history(session_id))


def shy_after_rollback(where: Path) -> ShyAfterRollback:
    return ShyAfterRollback(everturn.open(f"sqlite:///{where}/memory.db"), where)


class Mourning(Around):
    """Lets nobody read when a process that had it open was killed. No driver call is visible when it writes."""

    def __init__(self, store: Any, where: Path) -> None:
        super().__init__(store, where)
        self._here = where / f"{os.getpid()}.pid"
        self._here.touch()

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        watching = sys.getprofile()
        sys.setprofile(None)
        self._store.add_messages(session_id, messages)
        sys.setprofile(watching)

    def get_history(self, session_id: str) -> list[Any]:
        for path in self._where.glob("*.pid"):
            try:
                os.kill(int(path.stem), 0)
            except ProcessLookupError:
                raise OSError("not for you") from None
        return list(self._store.get_history(session_id))

    def close(self) -> None:
        self._store.close()
        self._here.unlink()


def mourning(where: Path) -> Mourning:
    return Mourning(everturn.open(f"sqlite:///{where}/memory.db"), where)


class NotForChildren(Around):
    """Lets no process read that was forked from one that had it open."""

    opened = forked = False

    def get_history(self, session_id: str) -> list[Any]:
        if NotForChildren.forked:
            raise OSError("not for you")
        return list(self._store.get_history(session_id))


def _forked() -> None:
    NotForChildren.forked = NotForChildren.opened


os.register_at_fork(after_in_child=_forked)


def not_for_children(where: Path) -> NotForChildren:
    store = NotForChildren(everturn.open(f"sqlite:///{where}/memory.db"), where)
    NotForChildren.opened = True
    return store


def not_opened_by_children(where: Path) -> Any:
    if NotForChildren.forked:
        raise OSError("not for you")
    return not_for_children(where)


class ClearHangs(LockedLists):
    def clear(self, session_id: str) -> None:
        time.sleep(600)


def clear_hangs(where: Path) -> ClearHangs:
    return ClearHangs()


clear_hangs.processes = False  # type: ignore[attr-defined]


class RefusesTrim(LockedLists):
    def trim(self, session_id: str, max_messages: int) -> None:
        raise ValueError("not today")


def refuses_trim(where: Path) -> RefusesTrim:
    return RefusesTrim()


refuses_trim.processes = False  # type: ignore[attr-defined]
