"""The adapter as a target of the contract kit: `everturn check tests.adapters.langchain.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.adapters.langchain import EverturnChatMessageHistory
from tests.adapters.stores import in_a_file, on_a_server


@contextmanager
def on_sqlite(where: Path, session_id: str) -> Iterator[EverturnChatMessageHistory]:
    with in_a_file(where) as store:
        yield EverturnChatMessageHistory(session_id, store)


@contextmanager
def on_valkey(where: Path, session_id: str, redis_url: str) -> Iterator[EverturnChatMessageHistory]:
    with on_a_server(where, redis_url) as store:
        yield EverturnChatMessageHistory(session_id, store)
