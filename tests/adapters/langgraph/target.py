"""The adapter as a target of the contract kit: `everturn check tests.adapters.langgraph.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.stores import at_dynamodb, in_a_file, on_a_server


@contextmanager
def on_sqlite(
    where: Path, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None
) -> Iterator[EverturnSaver]:
    with in_a_file(where, ttl=ttl, timeout=timeout, vfs=vfs) as store:
        yield EverturnSaver(store)


@contextmanager
def on_valkey(
    where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None
) -> Iterator[EverturnSaver]:
    with on_a_server(where, redis_url, ttl=ttl, timeout=timeout) as store:
        yield EverturnSaver(store)


on_sqlite.share_threads = on_valkey.share_threads = True  # type: ignore[attr-defined]  # what a factory offers
on_dynamodb = at_dynamodb(on_valkey)
