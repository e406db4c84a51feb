"""LangChain's chat message histories, as targets: everturn check examples.peers.langchain_peers:sql."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package announces its own end on import
    from langchain_community.chat_message_histories import FileChatMessageHistory, SQLChatMessageHistory
    from langchain_community.chat_message_histories import RedisChatMessageHistory as CommunityRedis

import psycopg
from langchain_postgres import PostgresChatMessageHistory
from sqlalchemy import create_engine


def file(where: Path, session_id: str) -> Any:
    """FileChatMessageHistory: a JSON file per session. The caller chooses the file; here its name is a digest."""
    return FileChatMessageHistory(str(where / f"{hashlib.sha256(session_id.encode()).hexdigest()}.json"))


@contextmanager
def sql(where: Path, session_id: str) -> Iterator[Any]:
    """SQLChatMessageHistory over SQLite."""
    engine = create_engine(f"sqlite:///{where}/langchain.db")
    yield SQLChatMessageHistory(session_id, connection=engine)
    engine.dispose()


@contextmanager
def redis(where: Path, session_id: str, redis_url: str, ttl: float | None = None) -> Iterator[Any]:
    """RedisChatMessageHistory of langchain-community."""
    seconds = None if ttl is None else int(ttl)
    history = CommunityRedis(session_id, url=redis_url, key_prefix=f"{where.name}:", ttl=seconds)
    yield history
    history.redis_client.close()


def postgres(where: Path, session_id: str, postgres_url: str) -> Any:
    """PostgresChatMessageHistory of langchain-postgres. Its session ids are UUIDs, here made from the id."""
    connection = _connection(os.getpid(), threading.get_ident(), postgres_url)
    connection.execute("SELECT pg_advisory_xact_lock(1)")  # its documentation says: once
    PostgresChatMessageHistory.create_tables(connection, where.name)
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, session_id))
    return PostgresChatMessageHistory(where.name, name, sync_connection=connection)


_connections: dict[tuple[int, int, str], psycopg.Connection[Any]] = {}


def _connection(process: int, thread: int, url: str) -> psycopg.Connection[Any]:
    """The connection of a thread, shared by its histories; a new one if it was lost."""
    found = _connections.get((process, thread, url))
    try:
        if found is not None:
            found.execute("ROLLBACK")  # an open transaction of another history
            return found
    except psycopg.OperationalError:
        pass
    found = _connections[process, thread, url] = psycopg.connect(url)
    return found
