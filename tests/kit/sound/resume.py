"""A sound store with leases and effects. The pieces are methods, for the mutants to break."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import Lists

LEASES = "CREATE TABLE IF NOT EXISTS leases (session TEXT PRIMARY KEY, token INTEGER, until REAL)"
EFFECTS = """CREATE TABLE IF NOT EXISTS effects
(session TEXT, key TEXT, status TEXT, result TEXT, PRIMARY KEY (session, key))"""


class Lease:
    def __init__(self, core: ResumingCore, session: str, token: int) -> None:
        self.core = core
        self.session = session
        self.token = token

    def release(self) -> None:
        self.core.release(self.session, self.token)

    def renew(self, seconds: float) -> None:
        self.core.renew(self.session, self.token, seconds)


class ResumingCore(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute(LEASES)
            db.execute(EFFECTS)

    # --- leases ------------------------------------------------------------------------------------------------------

    def next_token(self, before: int) -> int:
        return before + 1

    def look(self, db: sqlite3.Connection, session: str) -> tuple[int, float]:
        """The token and the end of the latest lease."""
        row = db.execute("SELECT token, until FROM leases WHERE session = ?", (session,)).fetchone()
        return row or (0, 0.0)

    def write_lease(self, db: sqlite3.Connection, session: str, token: int, until: float) -> None:
        db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (session, token, until))

    def lease(self, session: str, seconds: float) -> Lease:
        with self.change() as db:
            token, until = self.look(db, session)
            if until > time.time():
                raise ValueError(f"session {session!r} is leased")
            token = self.next_token(token)
            self.write_lease(db, session, token, time.time() + seconds)
        return Lease(self, session, token)

    def release(self, session: str, token: int) -> None:
        with self.change() as db:
            db.execute("UPDATE leases SET until = 0 WHERE session = ? AND token = ?", (session, token))

    def renew(self, session: str, token: int, seconds: float) -> None:
        with self.change() as db:
            self.fence(db, session, token)
            self.write_lease(db, session, token, time.time() + seconds)

    def fence(self, db: sqlite3.Connection, session: str, token: int) -> None:
        now, until = self.look(db, session)
        if now != token or until <= time.time():
            raise ValueError(f"session {session!r} is not leased by {token} any more")

    def append_with_lease(self, session: str, messages: Sequence[Any], token: int) -> Receipt:
        with self.change() as db:
            self.begin(db, session)
            self.fence(db, session, token)
            self.put(db, session, messages)
            return Receipt(self.touch(db, session))

    # --- effects -----------------------------------------------------------------------------------------------------

    def effect(self, db: sqlite3.Connection, session: str, key: str) -> dict[str, Any] | None:
        row = db.execute("SELECT status, result FROM effects WHERE session = ? AND key = ?", (session, key)).fetchone()
        return {"status": row[0], "result": json.loads(row[1])} if row else None

    def write_effect(self, db: sqlite3.Connection, session: str, key: str, status: str, result: Any = None) -> None:
        db.execute("INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?)", (session, key, status, json.dumps(result)))

    def begin_effect(self, session: str, key: str) -> dict[str, Any]:
        with self.change() as db:
            found = self.effect(db, session, key)
            if found is not None and found["status"] != "failed":
                return found
            self.write_effect(db, session, key, "started")
        return {"status": "new"}

    def finish_effect(self, session: str, key: str, result: Any) -> None:
        with self.change() as db:
            found = self.effect(db, session, key)
            if found is None or found["status"] != "started":
                raise ValueError(f"effect {key!r} is not started")
            self.write_effect(db, session, key, "finished", result)

    def fail_effect(self, session: str, key: str, error: Any) -> None:
        with self.change() as db:
            found = self.effect(db, session, key)
            if found is None or found["status"] != "started":
                raise ValueError(f"effect {key!r} is not started")
            self.write_effect(db, session, key, "failed", error)

    def once(self, session: str, key: str, do: Callable[[], Any]) -> Any:
        found = self.begin_effect(session, key)
        if found["status"] == "started":
            raise ValueError(f"effect {key!r} is in doubt")
        if found["status"] == "new":
            self.finish_effect(session, key, do())
            return self.begin_effect(session, key)["result"]
        return found["result"]


class ResumingLists(Lists):
    core: ResumingCore

    def add_messages(self, session_id: str, messages: Sequence[Any], *, lease: Lease | None = None) -> Receipt:  # type: ignore[override]
        made = [dict(message) for message in messages]
        if lease is None:
            return self.core.append(session_id, made)
        return self.core.append_with_lease(session_id, made, lease.token)

    def lease(self, session_id: str, *, seconds: float) -> Lease:
        return self.core.lease(session_id, seconds)

    def begin_effect(self, session_id: str, key: str) -> dict[str, Any]:
        return self.core.begin_effect(session_id, key)

    def finish_effect(self, session_id: str, key: str, result: Any) -> None:
        self.core.finish_effect(session_id, key, result)

    def fail_effect(self, session_id: str, key: str, error: Any) -> None:
        self.core.fail_effect(session_id, key, error)

    def once(self, session_id: str, key: str, do: Callable[[], Any]) -> Any:
        return self.core.once(session_id, key, do)


def made(core: type[ResumingCore] = ResumingCore) -> Any:
    def factory(where: Path) -> Any:
        return ResumingLists(core(where))

    return factory


lists = made()
