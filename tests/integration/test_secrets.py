"""Secrets stay out of errors: passwords in URLs, and what is stored, in any message, traceback, log or warning."""

from __future__ import annotations

import asyncio
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStoreError, Record, Summary, ToolCall
from everturn.backends.redis import errors
from everturn.backends.redis.url import parse
from everturn.core import codec
from everturn.core.masking import masked, masked_url
from everturn.testing.kit import target as targets
from everturn.testing.servers import valkey_server
from tests.store.places import Servers

SECRET = "hunter2"
NOWHERE = "127.0.0.1:1"  # nobody listens there
URLS = [
    # schemes that we do not know
    f"postgresql+psycopg://me:{SECRET}@{NOWHERE}/db",
    f"valkey://me:{SECRET}@{NOWHERE}",
    f"REDIS://me:{SECRET}@{NOWHERE}",
    f"Postgresql://me:{SECRET}@{NOWHERE}/db",
    f"mysql://me:x@{SECRET}?x={SECRET}@h",
    f"host=h password={SECRET} dbname=x",
    f"redis:me:{SECRET}@h",
    f"sqlite+pysqlcipher://:{SECRET}@/memory.db",
    f"sqlite://me:{SECRET}@h/memory.db",
    # passwords that were not escaped
    *(f"redis://me:x{character}{SECRET}@{NOWHERE}/0" for character in "%@/?#:[&=+ "),
    *(f"redis://:{SECRET}{character}x@{NOWHERE}/0" for character in "%@/?#:[&=+ "),
    *(f"postgresql://me:x{character}{SECRET}@{NOWHERE}/db" for character in "%@/?#:[&=+ "),
    *(f"postgresql://me:{SECRET}{character}x@{NOWHERE}/db" for character in "%@/?#:[&=+ "),
    f"redis://me:x?{SECRET}={SECRET}@{NOWHERE}",
    f"postgresql://me:{SECRET}%ZZ{SECRET}@{NOWHERE}/db",
    f"redis://{SECRET}@{NOWHERE}/nonsense",
    f"redis://me:{SECRET}@{NOWHERE}x/0",
    f"redis+cluster://me:{SECRET}@{NOWHERE}/nonsense",
    # sound ones, of servers that are not there
    f"redis://me:{SECRET}@{NOWHERE}",
    f"rediss://me:{SECRET}@{NOWHERE}",
    f"redis+cluster://me:{SECRET}@{NOWHERE}",
    f"redis+sentinel://me:{SECRET}@{NOWHERE}/service?sentinel_password={SECRET}",
    f"postgresql://me:{SECRET}@{NOWHERE}/db",
    f"postgresql://{NOWHERE}/db?password={SECRET}",
    f"postgresql://{NOWHERE}/db?pasword={SECRET}",
    f"sqlite:///nowhere/at/all/memory.db?password={SECRET}",
]


def all_that_is_told(error: BaseException) -> str:
    """Everything that a log or a crash report could show of an error and of all that led to it."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        exc = left.pop()
        if exc is not None and exc not in seen:
            seen.append(exc)
            left += [exc.__cause__, exc.__context__, *getattr(exc, "exceptions", ())]
    told = ["".join(traceback.format_exception(error))]
    for exc in seen:
        told += [str(exc), repr(exc), repr(exc.args), *getattr(exc, "__notes__", ())]
    return "\n".join(told)


def told_by(caplog: pytest.LogCaptureFixture, call: Callable[[], object]) -> str:
    """Everything that could be seen of a call that fails: its error, logs and warnings."""
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(MemoryStoreError) as caught:
            call()
    return "\n".join([all_that_is_told(caught.value), caplog.text, *(str(warning.message) for warning in warned)])


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("url", URLS)
def test_no_password_is_in_what_opening_says(url: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def opening() -> object:
        if kind == "async":
            return asyncio.run(everturn.open_async(url, timeout=0.2))
        return everturn.open(url, timeout=0.2)

    assert SECRET not in told_by(caplog, opening)


@pytest.mark.parametrize("url", URLS)
def test_a_masked_url_has_no_password(url: str) -> None:
    assert SECRET not in masked_url(url)
    if "://" in url:
        assert SECRET not in masked(f"could not open '{url.replace(' ', '')}', it said")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0?namespace=a", "redis://localhost:6379/0"),
        ("postgresql://me:secret@host:5432/db?x=1", "postgresql://me:***@host:5432/db"),
        ("redis://:p@ss/word@host", "redis://:***@host"),
        ("redis://secret@host", "redis://***@host"),
        ("sqlite:////home/me@work/memory.db?ttl=3", "sqlite:////home/me@work/memory.db"),
        ("memory.db", "memory.db"),
        ("redis://host?sentinel_password=a@b", "redis://***"),
    ],
)
def test_of_a_url_all_else_is_shown(url: str, shown: str) -> None:
    assert masked_url(url) == shown


def test_settings_in_a_text_are_masked() -> None:
    assert masked("host=h password=secret dbname=x") == "host=h password=*** dbname=x"
    assert masked("sslpassword='a b' port=1") == "sslpassword=*** port=1"
    assert masked("open redis://:a@h/0, it is there") == "open redis://:***@h/0, it is there"


def test_an_address_that_a_debugger_shows_has_no_password() -> None:
    assert SECRET not in repr(parse(f"redis://me:{SECRET}@host/1"))


def test_the_report_of_the_kit_names_its_target_without_password() -> None:
    target = targets.parse(f"redis://me:{SECRET}@host/0", use_server=True)
    assert target.text == "redis://me:***@host/0"
    assert target.url == f"redis://me:{SECRET}@host/0"
    with pytest.raises(targets.TargetError) as caught:
        targets.parse(f"me:{SECRET}@host".replace(":", ""))
    assert SECRET not in all_that_is_told(caught.value)


# --- what is stored --------------------------------------------------------------------------------------------------

BODY, LABEL, KEY, NOTE = "body-4f1c", "label-77ab", "key-90de", "note-3b2a"
CHANGES: dict[str, Callable[[Any], Any]] = {
    "add_messages": lambda store: store.add_messages("new", [ChatMessage("user", BODY)]),
    "with a key": lambda store: store.add_messages("a", [ChatMessage("user", BODY)], key=KEY),
    "append": lambda store: store.append("a", [ToolCall(NOTE, {"x": BODY}), Record("note", NOTE)]),
    "summary": lambda store: store.add_summary("a", Summary(BODY, (1.0,), (1, 1))),
    "snapshot": lambda store: store.save_snapshot("a", LABEL),
    "replace": lambda store: store.replace("a", [ChatMessage("user", BODY)], after=1),
    "clear": lambda store: store.clear("a"),
    "fork": lambda store: store.fork("a", "b"),
}


@pytest.fixture(scope="module")
def refusing(servers: Servers) -> Iterator[str]:
    """The URL of a schema that has a session, and in which PostgreSQL refuses every new row."""
    with everturn.open(servers.postgres.url, schema="refusing", warnings=False) as store:
        store.add_messages("a", [ChatMessage("user", BODY)])
    with psycopg.connect(servers.postgres.url, autocommit=True) as beside:
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'refusing' AND tablename <> 'schema_versions'"
        for (table,) in beside.execute(tables).fetchall():
            beside.execute(f"ALTER TABLE refusing.{table} ADD CHECK (false) NOT VALID")
        yield f"{servers.postgres.url}?schema=refusing"
        beside.execute("DROP SCHEMA refusing CASCADE")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_row_that_postgresql_refuses_is_not_quoted(
    refusing: str, caplog: pytest.LogCaptureFixture, kind: str, change: str
) -> None:
    """`DETAIL: Failing row contains (...)` is in the driver's error, which tracebacks show as the cause."""

    async def awaited() -> None:
        async with await everturn.open_async(refusing, timeout=2, warnings=False) as store:
            await CHANGES[change](store)

    def blocking() -> None:
        with everturn.open(refusing, timeout=2, warnings=False) as store:
            CHANGES[change](store)

    told = told_by(caplog, blocking if kind == "blocking" else lambda: asyncio.run(awaited()))
    assert "check constraint" in told
    assert [word for word in (BODY, LABEL, KEY, NOTE, "Failing row") if word in told] == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", ["a wrong type", "an ACL"])
def test_a_change_that_redis_refuses_is_not_quoted(
    caplog: pytest.LogCaptureFixture, redis_url: str, how: str, change: str
) -> None:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    with everturn.open(redis_url, timeout=1, warnings=False) as store:
        store.add_messages("a", [ChatMessage("user", BODY)])
        store.add_messages("new", [ChatMessage("user", BODY)])
        if how == "an ACL":
            client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        else:
            for key in client.keys("*"):
                client.set(key, BODY)
        try:
            told = told_by(caplog, lambda: CHANGES[change](store))
            assert [word for word in (BODY, LABEL, KEY, NOTE) if word in told] == []
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with valkey_server() as server:
        yield server.url


def test_arguments_that_redis_quotes_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    import redis

    def ask() -> None:
        said = redis.ResponseError(f"ERR unknown command 'EVALSHA', with args beginning with: 'abc' '{BODY}' ")
        raise errors.unsent("Redis", said) from said

    told = told_by(caplog, ask)
    assert "unknown command" in told
    assert BODY not in told


@pytest.mark.parametrize("kind", ["message", "tool_call", "summary"])
@pytest.mark.parametrize("body", ['{"role": "%s', '"%s"', '{"content": "%s"}', '{"text": ["%s"]}', "[[%s"])
def test_a_body_that_cannot_be_read_is_not_quoted(caplog: pytest.LogCaptureFixture, kind: str, body: str) -> None:
    stored = (body % BODY).encode()
    told = told_by(caplog, lambda: codec.decode("a", kind, 1, 0.0, codec.checksum(kind, stored), stored))
    assert BODY not in told
