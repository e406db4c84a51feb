"""read_only on servers: nothing is created, nothing is changed, and everything can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import everturn
from everturn import ChatMessage, InvalidInput, Unsupported
from tests.store.places import Servers

TURN = [ChatMessage("user", "hello")]
CHANGES: list[Callable[[Any], object]] = [
    lambda store: store.add_messages("looked-at", TURN),
    lambda store: store.clear("looked-at"),
    lambda store: store.save_snapshot("looked-at"),
    lambda store: store.fork("looked-at", "another"),
    lambda store: store.erase("looked-at"),
    lambda store: store.erase("looked-at", expected_version=1),
    lambda store: store.erase_all(prefix="looked-at"),
    lambda store: store.erase_all(where={"user": "u"}),
    lambda store: store.get_turn("looked-at", "key"),
    lambda store: store.compact(),
    lambda store: store.lease("looked-at"),
    lambda store: store.begin_effect("looked-at", "refund"),
]


@pytest.mark.parametrize("kind", ["valkey", "postgres", "dynamodb"])
def test_a_server_can_be_read_and_every_change_is_refused(kind: str, servers: Servers) -> None:
    options: dict[str, Any] = {"namespace": "read-only"}
    if kind == "dynamodb":
        url = servers.dynamodb.url_of(f"everturn-{uuid4().hex}")
    else:
        url, options["warnings"] = getattr(servers, kind).url, False
    with everturn.open(url, **options) as store:
        store.erase("looked-at")
        store.add_messages("looked-at", TURN)
        store.set_facts("looked-at", {"user": "u"})
        before = store.state("looked-at")
    with everturn.open(url, read_only=True, **options) as store:
        assert store.state("looked-at") == before
        assert [session.session_id for session in store.sessions().sessions] == ["looked-at"]
        assert store.verify("looked-at").ok
        assert store.health()
        assert store.get_lease("looked-at") is None
        assert store.get_effects("looked-at") == []
        for change in CHANGES:
            with pytest.raises(Unsupported, match="read-only"):
                change(store)
        assert store.state("looked-at") == before

    async def awaited() -> None:
        async with await everturn.open_async(url, read_only=True, **options) as store:
            assert await store.state("looked-at") == before
            with pytest.raises(Unsupported, match="read-only"):
                await store.add_messages("looked-at", TURN)

    asyncio.run(awaited())


def test_looking_at_an_empty_database_creates_no_schema(servers: Servers) -> None:
    with pytest.raises(InvalidInput, match="nothing has been stored in it yet"):
        everturn.open(servers.postgres.url, schema="never_made", read_only=True, warnings=False)
    with psycopg.connect(servers.postgres.url) as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'never_made'").fetchall()
    assert found == []
