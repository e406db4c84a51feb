"""The two stores of the demo, with the same methods: read the history, store a turn."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

SESSION = "customer-42"


class DemoStore(Protocol):
    """The methods that a worker calls."""

    def history(self) -> list[str]: ...

    def remember(self, turn: str, question: str, answer: str) -> None: ...


class NaiveStore:
    """A conversation as a JSON list in one row: read it, append, write it back. Many teams begin so.

    Each statement is a transaction, and SQLite loses none. Turns are lost between the statements.
    """

    def __init__(self, path: Path) -> None:
        import apsw

        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(5000)
        with suppress(apsw.BusyError):  # another worker is setting it
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS memory (session_id TEXT PRIMARY KEY, messages TEXT)")

    def history(self) -> list[str]:
        row = self._db.execute("SELECT messages FROM memory WHERE session_id = ?", (SESSION,)).fetchone()
        messages: list[str] = json.loads(row[0]) if row else []
        return messages

    def _add(self, message: str) -> None:
        messages = self.history()
        messages.append(message)
        time.sleep(0.001)  # the time of serializing, a network and a busy machine
        self._db.execute("INSERT OR REPLACE INTO memory VALUES (?, ?)", (SESSION, json.dumps(messages)))

    def remember(self, turn: str, question: str, answer: str) -> None:  # noqa: ARG002 - it has no use for the turn's name
        self._add(question)
        self._add(answer)


class EverturnStore:
    """A conversation in everturn: a turn is one call, and its key makes a retry harmless."""

    def __init__(self, path: Path) -> None:
        import everturn

        self._store = everturn.open(f"sqlite:///{path}", timeout=30)

    def history(self) -> list[str]:
        return [message.text for message in self._store.get_history(SESSION)]

    def remember(self, turn: str, question: str, answer: str) -> None:
        self._store.save_context(SESSION, question, answer, key=turn)


STORES: dict[str, type[NaiveStore | EverturnStore]] = {"naive": NaiveStore, "everturn": EverturnStore}
FILES = {"naive": "naive.db", "everturn": "memory.db"}


def open_store(name: str, folder: Path) -> DemoStore:
    return STORES[name](folder / FILES[name])
