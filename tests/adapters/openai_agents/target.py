"""The adapter as a target of the contract kit: `everturn check tests.adapters.openai_agents.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everturn.adapters.openai_agents import EverturnCompactionSession, EverturnSession
from tests.adapters.stores import at_dynamodb, in_a_file, on_a_server


@contextmanager
def on_sqlite(
    where: Path, session_id: str, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None
) -> Iterator[EverturnSession]:
    with in_a_file(where, ttl=ttl, timeout=timeout, vfs=vfs) as store:
        yield EverturnSession(session_id, store)


@contextmanager
def on_valkey(
    where: Path, session_id: str, redis_url: str, ttl: float | None = None, timeout: float | None = None
) -> Iterator[EverturnSession]:
    with on_a_server(where, redis_url, ttl=ttl, timeout=timeout) as store:
        yield EverturnSession(session_id, store)


@contextmanager
def folding_on_sqlite(where: Path, session_id: str, summarize: Any) -> Iterator[EverturnCompactionSession]:
    with in_a_file(where) as store:
        yield EverturnCompactionSession(session_id, store, summarize=summarize, max_messages=4)


@contextmanager
def folding_on_valkey(
    where: Path, session_id: str, redis_url: str, summarize: Any
) -> Iterator[EverturnCompactionSession]:
    with on_a_server(where, redis_url) as store:
        yield EverturnCompactionSession(session_id, store, summarize=summarize, max_messages=4)


folding_on_sqlite.pays_once = folding_on_valkey.pays_once = True  # type: ignore[attr-defined]


on_dynamodb = at_dynamodb(on_valkey)
