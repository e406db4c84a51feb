"""The adapter as a target of the contract kit: `everturn check tests.adapters.llama_index.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import everturn
from everturn.adapters.llama_index import EverturnChatStore


@contextmanager
def on_sqlite(where: Path) -> Iterator[EverturnChatStore]:
    with everturn.open(f"sqlite:///{where}/memory.db") as store:
        yield EverturnChatStore(store)


@contextmanager
def on_valkey(where: Path, redis_url: str) -> Iterator[EverturnChatStore]:
    with everturn.open(redis_url, namespace=sha256(str(where).encode()).hexdigest()[:16]) as store:
        yield EverturnChatStore(store)
