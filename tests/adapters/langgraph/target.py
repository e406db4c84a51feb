"""The adapter as a target of the contract kit: `everturn check tests.adapters.langgraph.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.stores import in_a_file, on_a_server


@contextmanager
def on_sqlite(where: Path) -> Iterator[EverturnSaver]:
    with in_a_file(where) as store:
        yield EverturnSaver(store)


@contextmanager
def on_valkey(where: Path, redis_url: str) -> Iterator[EverturnSaver]:
    with on_a_server(where, redis_url) as store:
        yield EverturnSaver(store)
