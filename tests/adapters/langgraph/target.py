"""The adapter as a target of the contract kit: `everturn check tests.adapters.langgraph.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import everturn
from everturn.adapters.langgraph import EverturnSaver


@contextmanager
def on_sqlite(where: Path) -> Iterator[EverturnSaver]:
    with everturn.open(f"sqlite:///{where}/memory.db") as store:
        yield EverturnSaver(store)


@contextmanager
def on_valkey(where: Path, redis_url: str) -> Iterator[EverturnSaver]:
    with everturn.open(redis_url, namespace=sha256(str(where).encode()).hexdigest()[:16]) as store:
        yield EverturnSaver(store)
