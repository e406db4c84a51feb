"""A sound store, written by hand over Python's sqlite3: every change is one immediate transaction.

The shapes (shapes.py) give it the faces of many frameworks; the mutants break one piece of it each. A connection lives
for one call, so threads and forks share nothing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (session TEXT, seq INTEGER, body TEXT, PRIMARY KEY (session, seq));
CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY, version INTEGER, next_seq INTEGER, expires_at REAL);
CREATE TABLE IF NOT EXISTS snapshots (id TEXT PRIMARY KEY, session TEXT, state TEXT);
CREATE TABLE IF NOT EXISTS undo (session TEXT, step INTEGER, state TEXT, PRIMARY KEY (session, step));
CREATE TABLE IF NOT EXISTS keys (session TEXT, key TEXT, digest TEXT, PRIMARY KEY (session, key));
"""


class Receipt:
    def __init__(self, version: int) -> None:
        self.version = version


class Core:
    """Messages are dicts; a session is a list of them."""

    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        self.path = where / "memory.db"
        self.ttl = ttl
        self.timeout = 5.0 if timeout is None else timeout
        self.create()

    def create(self) -> None:
        with self.change() as db:
            for statement in SCHEMA.split(";"):
                db.execute(statement)

    # --- transactions ------------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        with self.connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.rollback()
                raise
            db.execute("COMMIT")

    @contextmanager
    def view(self) -> Iterator[sqlite3.Connection]:
        with self.connected() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.rollback()

    # --- pieces ------------------------------------------------------------------------------------------------------

    def expired(self, db: sqlite3.Connection, session: str) -> bool:
        row = db.execute("SELECT expires_at FROM sessions WHERE session = ?", (session,)).fetchone()
        return bool(row and row[0] is not None and row[0] <= time.time())

    def begin(self, db: sqlite3.Connection, session: str) -> None:
        """Forget what has expired, before a session is changed."""
        if self.expired(db, session):
            for table in ("messages", "sessions", "snapshots", "undo", "keys"):
                db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        db.execute("INSERT OR IGNORE INTO sessions VALUES (?, 0, 1, NULL)", (session,))

    def touch(self, db: sqlite3.Connection, session: str) -> int:
        """Count the change, and let the session live on."""
        expires_at = None if self.ttl is None else time.time() + self.ttl
        db.execute("UPDATE sessions SET version = version + 1, expires_at = ? WHERE session = ?", (expires_at, session))
        return int(db.execute("SELECT version FROM sessions WHERE session = ?", (session,)).fetchone()[0])

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        if self.expired(db, session):
            return []
        rows = db.execute("SELECT body FROM messages WHERE session = ? ORDER BY seq", (session,))
        return [json.loads(body) for (body,) in rows.fetchall()]

    def latest(self, db: sqlite3.Connection, session: str) -> Any:
        """The last message, or None."""
        if self.expired(db, session):
            return None
        last = "SELECT body FROM messages WHERE session = ? ORDER BY seq DESC LIMIT 1"
        row = db.execute(last, (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        (seq,) = db.execute("SELECT next_seq FROM sessions WHERE session = ?", (session,)).fetchone()
        for number, message in enumerate(messages):
            db.execute("INSERT INTO messages VALUES (?, ?, ?)", (session, seq + number, encoded(message)))
        db.execute("UPDATE sessions SET next_seq = ? WHERE session = ?", (seq + len(messages), session))

    def set_all(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        db.execute("DELETE FROM messages WHERE session = ?", (session,))
        self.put(db, session, messages)

    def remember(self, db: sqlite3.Connection, session: str) -> None:
        """Keep the state that undo returns to."""
        state = json.dumps(self.load(db, session))
        (step,) = db.execute("SELECT coalesce(max(step), 0) + 1 FROM undo WHERE session = ?", (session,)).fetchone()
        db.execute("INSERT INTO undo VALUES (?, ?, ?)", (session, step, state))

    # --- operations --------------------------------------------------------------------------------------------------

    def append(
        self, session: str, messages: Sequence[Any], *, key: str | None = None, expected_version: int | None = None
    ) -> Receipt:
        with self.change() as db:
            self.begin(db, session)
            (version,) = db.execute("SELECT version FROM sessions WHERE session = ?", (session,)).fetchone()
            if key is not None and self.known(db, session, key, messages):
                return Receipt(version)
            if expected_version is not None and expected_version != version:
                raise ValueError(f"session {session!r} is at version {version}, not {expected_version}")
            if messages:
                self.put(db, session, messages)
                version = self.touch(db, session)
            return Receipt(version)

    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        digest = hashlib.sha256("\n".join(map(encoded, messages)).encode()).hexdigest()
        row = db.execute("SELECT digest FROM keys WHERE session = ? AND key = ?", (session, key)).fetchone()
        if row is None:
            db.execute("INSERT INTO keys VALUES (?, ?, ?)", (session, key, digest))
            return False
        if row[0] != digest:
            raise ValueError(f"key {key!r} was used with other content")
        return True

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        with self.view() as db:
            messages = self.load(db, session)
        return messages if limit is None else messages[max(0, len(messages) - limit) :]

    def clear(self, session: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            self.remember(db, session)
            self.set_all(db, session, [])
            self.touch(db, session)

    def clear_all(self) -> None:
        with self.change() as db:
            for table in ("messages", "sessions", "snapshots", "undo", "keys"):
                db.execute(f"DELETE FROM {table}")

    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            self.begin(db, session)
            messages = self.load(db, session)
            if len(messages) > max_messages:
                self.remember(db, session)
                self.set_all(db, session, messages[len(messages) - max_messages :])
                self.touch(db, session)

    def replace(self, session: str, messages: Sequence[Any]) -> None:
        with self.change() as db:
            self.begin(db, session)
            self.remember(db, session)
            self.set_all(db, session, messages)
            self.touch(db, session)

    def pop(self, session: str) -> Any:
        with self.change() as db:
            self.begin(db, session)
            messages = self.load(db, session)
            if not messages:
                return None
            self.set_all(db, session, messages[:-1])
            self.touch(db, session)
            return messages[-1]

    def delete(self, session: str, place: int) -> Any:
        with self.change() as db:
            self.begin(db, session)
            messages = self.load(db, session)
            if not 0 <= place < len(messages):
                return None
            self.set_all(db, session, messages[:place] + messages[place + 1 :])
            self.touch(db, session)
            return messages[place]

    def save_snapshot(self, session: str) -> str:
        with self.change() as db:
            self.begin(db, session)
            snapshot = uuid.uuid4().hex
            db.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?)", (snapshot, session, json.dumps(self.load(db, session)))
            )
            self.touch(db, session)
            return snapshot

    def rollback(self, session: str, snapshot: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            row = db.execute("SELECT state FROM snapshots WHERE id = ? AND session = ?", (snapshot, session)).fetchone()
            if row is None:
                raise KeyError(f"session {session!r} has no snapshot {snapshot!r}")
            self.remember(db, session)
            self.set_all(db, session, json.loads(row[0]))
            self.touch(db, session)

    def delete_snapshot(self, session: str, snapshot: str) -> None:
        with self.change() as db:
            db.execute("DELETE FROM snapshots WHERE id = ? AND session = ?", (snapshot, session))

    def list_snapshots(self, session: str) -> list[str]:
        with self.view() as db:
            if self.expired(db, session):
                return []
            rows = db.execute("SELECT id FROM snapshots WHERE session = ? ORDER BY rowid", (session,)).fetchall()
        return [snapshot for (snapshot,) in rows]

    def undo(self, session: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            latest = "SELECT step, state FROM undo WHERE session = ? ORDER BY step DESC LIMIT 1"
            row = db.execute(latest, (session,)).fetchone()
            if row is None:
                raise ValueError(f"session {session!r} has nothing to undo")
            db.execute("DELETE FROM undo WHERE session = ? AND step = ?", (session, row[0]))
            self.set_all(db, session, json.loads(row[1]))
            self.touch(db, session)


def encoded(message: Any) -> str:
    """As JSON; what JSON cannot carry is refused here."""
    text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    text.encode()  # a lone surrogate is refused, too
    return text
