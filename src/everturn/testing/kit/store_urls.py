"""Factories for store URLs: the backend and options of the URL, at a private place of the kit.

A URL names a backend, never data to touch. These factories say what they offer as all others do: by their signature.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit


def factory(url: str, *, use_server: bool = False) -> Callable[..., Any]:
    """Make the factory of a store URL. With `use_server` the server it names is used, in a namespace for each place."""
    scheme = url.partition("://")[0]
    make = PRIVATE[scheme] if scheme in PRIVATE and not use_server else _in_namespace
    made = make(url)
    made.share_threads = True
    made.pays_once = True
    _preload(scheme)
    return made  # type: ignore[no-any-return]  # a function, with the attributes of a factory


def _preload(scheme: str) -> None:
    """Import the backend, so that processes forked from this one need not."""
    from everturn.connect import GROUP

    for entry_point in entry_points(group=GROUP):
        if entry_point.name == scheme:
            backend = entry_point.load()
            for module in iter_modules(getattr(backend, "__path__", ())):
                importlib.import_module(f"{backend.__name__}.{module.name}")


def _sqlite(url: str) -> Any:
    import everturn

    query = urlsplit(url).query
    if not url.partition("://")[2].partition("?")[0]:

        def in_memory(where: Path, ttl: float | None = None, timeout: float | None = None) -> Any:  # noqa: ARG001 - no place
            return everturn.open(f"sqlite://?{query}", **_given(ttl=ttl, timeout=timeout))

        in_memory.processes = False  # type: ignore[attr-defined]  # what a factory offers are its attributes
        return in_memory

    def file(where: Path, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None) -> Any:
        return everturn.open(f"sqlite:///{where}/memory.db?{query}", **_given(ttl=ttl, timeout=timeout, vfs=vfs))

    return file


def _redis(url: str) -> Any:
    import redis  # noqa: F401 - as in `_preload`: the backend imports it when it connects

    import everturn

    query = urlsplit(url).query

    def server(where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None) -> Any:
        given = _given(ttl=ttl, timeout=timeout, namespace=where.name, warnings="off")
        return everturn.open(f"{redis_url}?{query}", **given)

    if url.startswith("redis:"):
        server.corrupt = _corrupt_redis  # type: ignore[attr-defined]
    return server


def _postgres(url: str) -> Any:
    import everturn

    query = urlsplit(url).query

    def server(where: Path, postgres_url: str, ttl: float | None = None, timeout: float | None = None) -> Any:
        given = _given(ttl=ttl, timeout=timeout, namespace=where.name)
        return everturn.open(f"{postgres_url}?{query}", **given)

    server.corrupt = _corrupt_postgres  # type: ignore[attr-defined]
    return server


def _dynamodb(url: str) -> Any:
    import everturn

    known = {"region": "us-east-1", "create": "true"}
    query = {name: value for name, value in parse_qsl(urlsplit(url).query) if name not in {*known, "endpoint"}}

    def server(where: Path, dynamodb_endpoint: str, ttl: float | None = None, timeout: float | None = None) -> Any:
        options = urlencode({**query, **known, "endpoint": dynamodb_endpoint})
        return everturn.open(f"dynamodb://everturn?{options}", **_given(ttl=ttl, timeout=timeout, namespace=where.name))

    server.corrupt = _corrupt_dynamodb  # type: ignore[attr-defined]
    return server


def _in_namespace(url: str) -> Any:
    import everturn

    def server(where: Path, ttl: float | None = None, timeout: float | None = None) -> Any:
        return everturn.open(url, **_given(ttl=ttl, timeout=timeout, namespace=where.name))

    def cleanup(where: Path) -> None:
        with everturn.open(url, namespace=where.name) as store:
            while page := store.sessions(limit=100).sessions:
                for session in page:
                    store.erase(session.session_id)

    server.cleanup = cleanup  # type: ignore[attr-defined]
    return server


PRIVATE: dict[str, Callable[[str], Any]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "redis+cluster": _redis,
    "redis+sentinel": _redis,
    "postgresql": _postgres,
    "postgres": _postgres,
    "dynamodb": _dynamodb,
}
"""Schemes for which the kit can start a private backend."""


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


# --- garbage in our own stored form (docs/storage-redis.md and its like) ---------------------------------------------


def _corrupt_redis(where: Path, session_id: str, *, redis_url: str) -> None:
    """Write the log anew, with garbage of the same length at the end of its second entry."""
    import redis

    log = f"everturn:{{{where.name}:{session_id}}}:log"
    with redis.Redis.from_url(redis_url) as client:
        entries: Any = client.xrange(log)
        client.delete(log)
        for number, (entry_id, fields) in enumerate(entries):
            garbled = {kind: value[:-20] + b"\xff" * 20 for kind, value in fields.items()}
            client.xadd(log, garbled if number == 1 else fields, id=entry_id)


def _corrupt_postgres(where: Path, session_id: str, *, postgres_url: str) -> None:
    """Replace the body of the second entry by as many question marks."""
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE everturn.entries SET body = repeat('?', length(body)) WHERE seq = 2 AND session ="
            " (SELECT no FROM everturn.sessions WHERE namespace = %s AND session_id = %s)",
            (where.name, session_id),
        )


def _corrupt_dynamodb(where: Path, session_id: str, *, dynamodb_endpoint: str) -> None:
    """Replace the end of the second turn's line by question marks, in the item that has it."""
    from everturn.backends.dynamodb.client import TableAddress, driver_of
    from everturn.backends.dynamodb.stored_form import ENTRIES, HEAD, session_key

    driver = driver_of(TableAddress("everturn", "us-east-1", dynamodb_endpoint))
    try:
        bounds = {":pk": {"S": session_key(where.name, session_id)}, ":low": {"S": ENTRIES}, ":high": {"S": HEAD}}
        asked = "pk = :pk AND sk BETWEEN :low AND :high"
        found = driver.query(TableName="everturn", KeyConditionExpression=asked, ExpressionAttributeValues=bounds)
        item = found["Items"][1]  # a turn is an item; the head is the last
        lines = item["lines"]["S"]
        driver.put_item(TableName="everturn", Item={**item, "lines": {"S": lines[:-20] + "?" * 20}})
    finally:
        driver.close()
