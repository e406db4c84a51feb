"""What a receipt of an erasure says, held against the bytes: in the server's files, and on its replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ErasureReceipt
from everturn.backends.redis.maintenance import UNKNOWN_FILES
from everturn.testing.servers import ValkeyServer, valkey_cluster, valkey_server, wait_until
from tests.integration.writers import FACES
from tests.store.speech import say, user

MARKER = "SECRETOFTHECUSTOMER"


def files_with_marker(server: ValkeyServer) -> set[str]:
    """What kinds of files have it: `.rdb`, `.aof`."""
    files = (path for path in Path(server.directory).rglob("*") if path.is_file())
    return {path.suffix for path in files if MARKER.encode() in path.read_bytes()}


def erased(face: str, url: str) -> ErasureReceipt:
    """The receipt for a session that holds the marker."""

    async def awaited() -> Any:
        async with await everturn.open_async(url, warnings="off") as store:
            await store.add_messages("a", [user(MARKER)])
            return await store.erase("a")

    if face == "tasks":
        return asyncio.run(awaited())  # type: ignore[no-any-return]
    with everturn.open(url, warnings="off") as store:
        say(store, "a", MARKER)
        return store.erase("a")


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_keeps_nothing_on_disk_keeps_nothing(face: str) -> None:
    with valkey_server() as server:
        receipt = erased(face, server.url)
        assert (receipt.entries, receipt.complete, receipt.remains) == (1, True, ())
        assert files_with_marker(server) == set()


@pytest.mark.parametrize("face", FACES)
def test_an_append_only_file_keeps_it_until_it_is_rewritten(face: str) -> None:
    with valkey_server(appendonly=True) as server:
        receipt = erased(face, server.url)
        assert receipt.complete
        assert [place for place in receipt.remains if "append-only file, until it is rewritten" in place]
        assert files_with_marker(server) == {".aof"}
        server.command("BGREWRITEAOF")
        wait_until(lambda: files_with_marker(server) == set(), "the file is rewritten")


def test_an_rdb_file_keeps_it_until_the_next_save() -> None:
    with valkey_server(save="3600 1") as server:
        with everturn.open(server.url, warnings="off") as store:
            say(store, "a", MARKER)
            server.command("CONFIG", "SET", "rdbcompression", "no")
            server.command("SAVE")
            receipt = store.erase("a")
        assert receipt.remains == ("the server's RDB file, until the next save (BGSAVE)",)
        assert files_with_marker(server) == {".rdb"}
        server.command("SAVE")
        assert files_with_marker(server) == set()


def test_a_replica_that_has_not_followed_makes_it_incomplete() -> None:
    def length_there() -> Any:
        return replica.command("XLEN", "everturn:{:a}:log")

    with valkey_server(replicas=1) as server, everturn.open(server.url, warnings="off") as store:
        (replica,) = server.replicas
        say(store, "b", MARKER)
        receipt = store.erase("b")
        assert (receipt.complete, receipt.remains) == (True, ("the files of its replicas, likewise",))
        say(store, "a", MARKER)
        wait_until(lambda: length_there() == 1, "the replica has it")
        replica.pause()
        receipt = store.erase("a")
        assert (receipt.entries, receipt.complete) == (1, False)
        replica.resume()
        assert store.erase("a").complete
        assert length_there() == 0


def test_a_server_that_does_not_tell_is_not_vouched_for() -> None:
    with valkey_server() as server:
        server.command("ACL", "SETUSER", "shy", "on", "nopass", "~*", "+@all", "-info", "-config")
        with everturn.open(server.url.replace("redis://", "redis://shy:x@")) as store:
            say(store, "a", MARKER)
            receipt = store.erase("a")
        assert (receipt.entries, receipt.complete, receipt.remains) == (1, True, (UNKNOWN_FILES,))


def test_each_master_of_a_cluster_is_asked_for_its_own() -> None:
    with valkey_cluster(masters=2, replicas=0) as cluster, everturn.open(cluster.url, warnings="off") as store:
        keeper = cluster.master_of("everturn:{:a}:meta")
        keeper.command("CONFIG", "SET", "appendonly", "yes")
        wait_until(lambda: keeper.info("persistence")["aof_rewrite_in_progress"] == "0", "it keeps a file")
        say(store, "a", MARKER)
        other = next(
            name
            for name in (f"s{number}" for number in range(100))
            if cluster.master_of(f"everturn:{{:{name}}}:meta") is not keeper
        )
        say(store, other, MARKER)
        assert [bool(store.erase(name).remains) for name in ("a", other)] == [True, False]
