"""Sound stores over PostgreSQL, written by hand: rows of jsonb, and one row that is read and written SERIALIZABLE."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.types.json import Jsonb

T = TypeVar("T")
TABLES = """
CREATE TABLE IF NOT EXISTS {0}_sessions (session text COLLATE "C" PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {0}_messages (
    session text COLLATE "C", seq bigint, body jsonb NOT NULL, PRIMARY KEY (session, seq)
);
CREATE TABLE IF NOT EXISTS {0}_whole (session text COLLATE "C" PRIMARY KEY, messages jsonb NOT NULL);
"""
LOCK = "SELECT pg_advisory_xact_lock(hashtext(%s))"  # two CREATE ... IF NOT EXISTS at once may collide


class Store:
    """A connection lives for one call, so threads and forks share nothing."""

    isolation: IsolationLevel | None = None

    def __init__(self, prefix: str, url: str) -> None:
        self.prefix = prefix
        self.url = url
        with self.connected() as db:
            db.execute(LOCK, (prefix,))
            db.execute(TABLES.format(prefix))

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url, connect_timeout=10) as db:
            db.isolation_level = self.isolation
            yield db

    def sql(self, text: str) -> Any:
        return text.replace("$", self.prefix)


class Rows(Store):
    """A row of jsonb for each message. The row of its session gives it a number, and keeps others out meanwhile."""

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.connected() as db:
            numbered = (
                "INSERT INTO $_sessions VALUES (%s, %s) ON CONFLICT (session) "
                "DO UPDATE SET last = $_sessions.last + excluded.last RETURNING last"
            )
            found = db.execute(self.sql(numbered), (session_id, len(messages))).fetchone()
            first = (found[0] if found else 0) - len(messages) + 1
            rows = [(session_id, first + number, Jsonb(dict(one))) for number, one in enumerate(messages)]
            with db.cursor() as cursor:
                cursor.executemany(self.sql("INSERT INTO $_messages VALUES (%s, %s, %s)"), rows)

    def get_history(self, session_id: str) -> list[Any]:
        with self.connected() as db:
            sql = self.sql("SELECT body FROM $_messages WHERE session = %s ORDER BY seq")
            return [body for (body,) in db.execute(sql, (session_id,)).fetchall()]

    def trim(self, session_id: str, max_messages: int) -> None:
        with self.connected() as db:
            db.execute(self.sql("SELECT 1 FROM $_sessions WHERE session = %s FOR UPDATE"), (session_id,))
            latest = "SELECT seq FROM $_messages WHERE session = %s ORDER BY seq DESC LIMIT %s"
            sql = f"DELETE FROM $_messages WHERE session = %s AND seq NOT IN ({latest})"
            db.execute(self.sql(sql), (session_id, session_id, max_messages))

    def clear(self, session_id: str) -> None:
        with self.connected() as db:
            db.execute(self.sql("SELECT 1 FROM $_sessions WHERE session = %s FOR UPDATE"), (session_id,))
            db.execute(self.sql("DELETE FROM $_messages WHERE session = %s"), (session_id,))


class Whole(Store):
    """The whole history in one value, read, changed and written in a SERIALIZABLE transaction, which may be tried
    again: a serialization failure says that nothing was written."""

    isolation = IsolationLevel.SERIALIZABLE

    def changed(self, session: str, change: Callable[[list[Any]], list[Any]]) -> None:
        while True:
            try:
                with self.connected() as db:
                    messages = change(self.held(db, session))
                    sql = "INSERT INTO $_whole VALUES (%s, %s) ON CONFLICT (session) DO UPDATE SET messages = %s"
                    db.execute(self.sql(sql), (session, Jsonb(messages), Jsonb(messages)))
                return
            except (errors.SerializationFailure, errors.DeadlockDetected):
                continue

    def held(self, db: psycopg.Connection[Any], session: str) -> list[Any]:
        row = db.execute(self.sql("SELECT messages FROM $_whole WHERE session = %s"), (session,)).fetchone()
        return row[0] if row else []

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        added = json.loads(json.dumps([dict(message) for message in messages], allow_nan=False))
        self.changed(session_id, lambda held: held + added)

    def get_history(self, session_id: str) -> list[Any]:
        with self.connected() as db:
            return self.held(db, session_id)

    def trim(self, session_id: str, max_messages: int) -> None:
        self.changed(session_id, lambda held: held[max(0, len(held) - max_messages) :])

    def clear(self, session_id: str) -> None:
        self.changed(session_id, lambda _: [])


def made(store: type[Store]) -> Any:
    def factory(where: Path, postgres_url: str) -> Store:
        return store(where.name, postgres_url)

    factory.share_threads = True  # type: ignore[attr-defined]
    return factory


jsonb = made(Rows)
serializable = made(Whole)
