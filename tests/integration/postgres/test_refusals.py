"""A real server that refuses: a standby addressed by mistake, a disk that is full, a deadlock with somebody else."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends._shared.server_warnings import HostileSetting
from everturn.backends.postgres import batching
from everturn.testing.servers import PostgresServer, postgres_server, wait_until
from everturn.testing.servers.binaries import unprivileged_owner
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turn, turns, without_keys

# --- a standby -------------------------------------------------------------------------------------------------------


def test_a_standby_addressed_by_mistake_is_named_as_such() -> None:
    async def awaited(url: str) -> None:
        async with await everturn.open_async(url, timeout=5) as store:
            assert len(await store.get_history("a")) == 2
            await store.add_messages("a", turn("2"))

    def blocking(url: str) -> None:
        with everturn.open(url, timeout=5) as store:
            assert len(store.get_history("a")) == 2
            store.add_messages("a", turn("2"))

    with postgres_server(standbys=1) as server:
        (standby,) = server.standbys
        # Without warnings: the standby may not be streaming yet.
        with everturn.open(server.url, timeout=20, warnings=False) as store:
            store.add_messages("a", turn("1"))
            with (
                psycopg.connect(standby.url, autocommit=True) as there,
                psycopg.connect(server.url, autocommit=True) as here,
            ):
                (written,) = here.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
                read = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
                wait_until(lambda: there.execute(read, (written,)).fetchone() == (True,), "the standby has it")
            for way in (blocking, lambda url: asyncio.run(awaited(url))):
                with (
                    pytest.warns(HostileSetting, match="a standby: every change will be refused"),
                    pytest.raises(MemoryStoreBackendError, match=r"read-only.*address the primary") as caught,
                ):
                    way(standby.url)
                assert (caught.value.outcome, caught.value.transient) == ("not_written", False)
            assert len(store.get_history("a")) == 2
            _stale_when_alone(server, standby)


def _stale_when_alone(server: PostgresServer, standby: PostgresServer) -> None:
    """A standby without its primary gets older and older; libpq finds the primary among several hosts."""
    hosts = {"host": "127.0.0.1,127.0.0.1", "port": f"{standby.port},{server.port}"}
    with everturn.open(
        "postgresql://postgres@/postgres", target_session_attrs="read-write", timeout=10, **hosts
    ) as one:
        one.add_messages("b", turn("1"))
    server.kill()
    with psycopg.connect(standby.url, autocommit=True) as there:
        alone = "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"
        wait_until(lambda: there.execute(alone).fetchone() == (True,), "the standby is alone")
    with pytest.warns(HostileSetting) as said:
        everturn.open(standby.url, timeout=10).close()
    assert ["it has lost its primary" in str(warning.message) for warning in said] == [False, True]


# --- a disk that is full ---------------------------------------------------------------------------------------------


def as_owner(work: Callable[[], object]) -> None:
    """Do this as the user whom the server belongs to."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if owner := unprivileged_owner():
                os.setgid(owner[1])
                os.setuid(owner[0])
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def limited_files(server: PostgresServer) -> Iterator[Callable[[], None]]:
    """No file may grow beyond 24 MB: what PostgreSQL takes for a full disk. Yields what lifts it."""

    def limit(size: int) -> None:
        pids = server.pids
        as_owner(lambda: [resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)) for pid in pids])

    limit(24 * 2**20 + 4096)
    yield lambda: limit(resource.RLIM_INFINITY)


@contextmanager
def small_disk(server: PostgresServer) -> Iterator[Callable[[], None]]:
    """The entries are on a disk of 16 MB. Yields what makes it larger."""
    folder = server.directory / "small"
    folder.mkdir()
    user, group = unprivileged_owner() or (os.getuid(), os.getgid())
    mount = ["mount", "-t", "tmpfs", "-o", f"size=16m,uid={user},gid={group},mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only one who may can mount a small disk: root, and not in most containers")
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")  # type: ignore[arg-type]  # ours
            connection.execute("ALTER TABLE everturn.entries SET TABLESPACE small")

        def make_room() -> None:
            subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)

        yield make_room
    finally:
        server.stop()
        subprocess.run(["umount", str(folder)], check=True)


def fill(store: Any) -> None:
    for _ in range(60):
        store.add_messages("a", [ChatMessage("user", secrets.token_hex(2**19))])


@pytest.mark.parametrize("how", [limited_files, small_disk], ids=lambda how: how.__name__)
def test_a_full_disk_is_not_written_and_says_so(how: Any) -> None:
    with (
        postgres_server() as server,
        everturn.open(server.url, timeout=20) as store,
        how(server) as make_room,
    ):
        with pytest.raises(MemoryStoreBackendError, match=r"disk is full.* make room") as caught:
            fill(store)
        assert (caught.value.outcome, caught.value.transient) == ("not_written", False)
        kept = store.info("a").version
        assert (len(store.get_history("a")), store.verify().ok) == (kept, True)
        make_room()
        store.add_messages("a", [ChatMessage("user", secrets.token_hex(2**19))])
        assert (len(store.get_history("a")), store.verify().ok) == (kept + 1, True)


# --- locks of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", FACES)
def test_a_deadlock_with_somebody_else_is_retried(
    server: PostgresServer,
    url: str,
    schema: str,
    beside: psycopg.Connection[Any],
    face: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trigger of somebody else's wants a row that is locked by one who wants our session: one of us must yield."""
    monkeypatch.setattr(batching, "PATIENCE", 20.0)  # else a batch gives way before it comes to a deadlock
    everturn.open(url).close()
    beside.execute(f"CREATE TABLE public.{schema}_others AS SELECT 0 AS n")
    beside.execute(
        f"CREATE FUNCTION {schema}_count() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN UPDATE public.{schema}_others SET n = n + 1; RETURN NULL; END $$"
    )
    with everturn.open(url) as store:
        store.add_messages("a", turn("0"))
    beside.execute(f"CREATE TRIGGER count AFTER INSERT ON {schema}.entries EXECUTE FUNCTION {schema}_count()")
    deadlocks = server.log.count("deadlock detected")
    # A waiter looks for a deadlock once, so long after it began to wait: we when the other waits, too; the other never.
    hasty = "-c deadlock_timeout=1s"
    beside.execute("SET deadlock_timeout = '1min'")

    def blocking() -> None:
        with everturn.open(url, timeout=20, options=hasty) as store:
            receipts.append(store.add_messages("a", turn("1")))

    async def awaited() -> None:
        async with await everturn.open_async(url, timeout=20, options=hasty) as store:
            calls = [store.add_messages(name, turn("1")) for name in ("b", "a", "c")]
            receipts.extend(await asyncio.gather(*calls))

    receipts: list[Any] = []
    caller = threading.Thread(target=blocking if face == "threads" else lambda: asyncio.run(awaited()))
    with beside.transaction():
        beside.execute(f"UPDATE {schema}_others SET n = 0")
        caller.start()
        with psycopg.connect(server.url, autocommit=True) as look:
            free = f"SELECT 1 FROM {schema}.sessions WHERE session_id = 'a' FOR UPDATE SKIP LOCKED"
            wait_until(lambda: look.execute(free).fetchone() is None, "our change has the session")  # type: ignore[arg-type]
        beside.execute(f"SELECT 1 FROM {schema}.sessions WHERE session_id = 'a' FOR UPDATE")
    caller.join()
    assert server.log.count("deadlock detected") > deadlocks
    assert len(receipts) == (1 if face == "threads" else 3)
    with everturn.open(url) as store:
        assert [message.content for message in store.get_history("a")] == ["0", "0", "1", "1"]
        assert store.verify().ok


@pytest.mark.parametrize("face", FACES)
def test_no_lock_outlives_its_call(url: str, face: str, beside: psycopg.Connection[Any]) -> None:
    """No advisory lock ever, but for a migration's; and none of any kind once the writers rest."""
    ledger = Ledger()
    held = "SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid() AND locktype = %s"
    with Writers(face, url, ledger, turns, every_kind, without_keys, timeout=20):
        for _ in range(20):
            ledger.progress(3)
            assert beside.execute(held, ("advisory",)).fetchone() == (0,)
    assert beside.execute(held, ("transactionid",)).fetchone() == (0,)
    with everturn.open(url) as store:
        ledger.check(store)
