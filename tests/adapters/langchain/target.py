"""The adapter as a target of the contract kit: `everturn check tests.adapters.langchain.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import everturn
from everturn.adapters.langchain import EverturnChatMessageHistory


@contextmanager
def on_sqlite(where: Path, session_id: str) -> Iterator[EverturnChatMessageHistory]:
    with everturn.open(f"sqlite:///{where}/memory.db") as store:
        yield EverturnChatMessageHistory(session_id, store)


@contextmanager
def on_valkey(where: Path, session_id: str, redis_url: str) -> Iterator[EverturnChatMessageHistory]:
    with everturn.open(redis_url, namespace=sha256(str(where).encode()).hexdigest()[:16]) as store:
        yield EverturnChatMessageHistory(session_id, store)
