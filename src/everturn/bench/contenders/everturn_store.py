"""everturn through its public API, sync and async, as a user writes it: in a SQLite file or on a server."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import everturn
from everturn import AsyncMemoryStore, ChatMessage, MemoryStore
from everturn.bench.contenders import Place
from everturn.bench.contenders.contender import AsyncContender, BlockingContender
from everturn.bench.workload import PlainMessage

warnings.simplefilter("ignore", RuntimeWarning)  # of the server's settings, which are the benchmark's choice


def url(path: Path) -> str:
    """The URL of the database in this directory."""
    return f"sqlite:///{path.resolve() / 'everturn.db'}"


def as_messages(written: Iterable[PlainMessage]) -> list[ChatMessage]:
    """The workload's messages as everturn's."""
    return [ChatMessage(message["role"], message["content"]) for message in written]


def open_store(place: Place) -> MemoryStore:
    """A store in this place whose methods block."""
    return everturn.open(_url(place), **_options(place))


async def open_async_store(place: Place) -> AsyncMemoryStore:
    """A store in this place whose methods are awaited."""
    return await everturn.open_async(_url(place), **_options(place))


def _url(place: Place) -> str:
    return url(place) if isinstance(place, Path) else place


def _options(place: Place) -> dict[str, Any]:
    if isinstance(place, Path):
        return {}
    # Other contenders use the same server; and a driver that is imported for the first time takes its time.
    return {"namespace": str(os.getpid()), "timeout": 60}


class Everturn(BlockingContender):
    """`MemoryStore` with its default durability."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self.store = open_store(place)
        self._on_server = not isinstance(place, Path)
        self._written: set[str] = set()

    def session(self, session_id: str) -> str:
        self._written.add(session_id)
        return session_id

    def made(self, turn: Sequence[PlainMessage]) -> list[ChatMessage]:
        return as_messages(turn)

    def add(self, session: str, turn: list[ChatMessage]) -> None:
        self.store.add_messages(session, turn)

    def read(self, session: str) -> list[ChatMessage]:
        return self.store.get_history(session)

    def latest(self, session: str, count: int) -> list[ChatMessage]:
        return self.store.get_history(session, limit=count)

    def edit(self, session_id: str, *, edits: int) -> None:
        """Take every second message back, so that the history is in as many ranges as there are edits."""
        after = 0
        for turn in self.prepared(edits):
            after = self.store.replace(self.session(session_id), turn, after=after).seqs[0]

    def close(self) -> None:
        """Close the store. The server may be someone's own: nothing is left there."""
        for session_id in self._written if self._on_server else ():
            self.store.erase(session_id)
        self.store.close()


class AsyncEverturn(AsyncContender):
    """`AsyncMemoryStore`. With one task every append waits for its own commit."""

    def __init__(self, place: Place) -> None:
        """Open the store on an event loop of its own."""
        super().__init__()
        self._store = self.runner.run(open_async_store(place))

    def made(self, turn: Sequence[PlainMessage]) -> list[ChatMessage]:
        return as_messages(turn)

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        await self._store.add_messages(session, turn)

    async def read(self, session: str) -> list[ChatMessage]:
        return await self._store.get_history(session)

    async def latest(self, session: str, count: int) -> list[ChatMessage]:
        return await self._store.get_history(session, limit=count)

    def close(self) -> None:
        """Close the store and the loop."""
        self.runner.run(self._store.close())
        self.runner.close()
