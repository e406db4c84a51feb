"""The adapter as a target of the contract kit: `everturn check tests.adapters.openai_agents.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import everturn
from everturn.adapters.openai_agents import EverturnSession


@contextmanager
def on_sqlite(where: Path, session_id: str) -> Iterator[EverturnSession]:
    with everturn.open(f"sqlite:///{where}/memory.db") as store:
        yield EverturnSession(session_id, store)


@contextmanager
def on_valkey(where: Path, session_id: str, redis_url: str) -> Iterator[EverturnSession]:
    with everturn.open(redis_url, namespace=sha256(str(where).encode()).hexdigest()[:16]) as store:
        yield EverturnSession(session_id, store)
