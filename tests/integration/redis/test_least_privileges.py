"""A user of the server with the commands and keys that docs/operations.md lists, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import everturn
from everturn import MemoryStoreBackendError
from everturn.testing.servers import ValkeyServer
from tests.integration.surface import whole_surface
from tests.integration.writers import turn


def rules() -> list[str]:
    """The user's rules, word for word."""
    page = Path("docs/operations.md").read_text("utf-8").partition("## Least privileges")[2]
    command = page.partition("```text\n")[2].partition("```")[0].split()
    assert command[:3] == ["ACL", "SETUSER", "memory"]
    return command[3:]


@pytest.fixture
def url(server: ValkeyServer, client: Any) -> Iterator[str]:
    client.execute_command("ACL", "SETUSER", "memory", *rules())
    yield server.url.replace("redis://", "redis://memory:secret@")
    client.execute_command("ACL", "DELUSER", "memory")


def test_a_store_needs_what_the_docs_list(url: str, client: Any) -> None:
    with everturn.open(url, timeout=20) as store, everturn.open("sqlite://") as other:
        whole_surface(store)
        store.add_messages("c", turn("1"))
        assert everturn.copy(store, other).ok
        store.erase("c")
        assert everturn.copy(other, store).ok
        assert store.get_history("c")
    denied = [(entry["reason"], entry["object"]) for entry in client.acl_log()]
    optional = {"config|get", "info", "client|setinfo", "cluster|slots", "command|docs", "hello"}
    assert {what for _, what in denied} <= optional


def test_the_keys_of_others_are_not_to_be_had(url: str) -> None:
    with redis.Redis.from_url(url) as user:
        for command in (("SET", "mine", "1"), ("HGET", "theirs", "a"), ("FLUSHALL",), ("CONFIG", "SET", "save", "")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(*command)


@pytest.mark.parametrize("command", ["hset", "xadd", "evalsha"])
def test_without_a_command_a_change_is_an_error(url: str, client: Any, command: str) -> None:
    client.execute_command("ACL", "SETUSER", "memory", f"-{command}")
    with pytest.raises(MemoryStoreBackendError), everturn.open(url, timeout=2) as store:
        store.add_messages("a", turn("1"))
