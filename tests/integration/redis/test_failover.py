"""Masters that are lost while writers run: these go on by themselves, and nothing acknowledged is lost.

`wait_replicas` is all the replicas there are, before and after: what is acknowledged is on each of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

import everturn
from everturn import MemoryStoreBackendError
from everturn.testing.servers import (
    ValkeyCluster,
    ValkeyServer,
    valkey_cluster,
    valkey_sentinel,
    valkey_server,
    wait_until,
)
from tests.integration.redis.test_faults import SLACK, checked
from tests.integration.redis.test_stored_form import full_session
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turns
from tests.store.speech import say, user, words
from tests.tiers import first

OWN = "everturn:{:own0}:meta"  # of a session that a writer changes in every way
Lose = tuple[Callable[[ValkeyServer], None], Callable[[ValkeyServer], None]]
# How a master goes and comes back. One that was only silent comes back believing that it is still the master.
WAYS: dict[str, Lose] = {
    "threads": (ValkeyServer.kill, ValkeyServer.restart),
    "tasks": (ValkeyServer.pause, ValkeyServer.resume),
}


def lose(master: ValkeyServer, face: str, ledger: Ledger, group: Any) -> None:
    """Lose a master and its promises: its replica takes over, alone. Return when it is back, as a replica."""
    go, come_back = WAYS[face]
    go(master)
    if isinstance(group, ValkeyCluster):
        ledger.progress(10)  # those of other masters go on meanwhile
    group.wait_until_whole()
    # The promoted one has nobody to copy to, so it acknowledges nothing.
    wait_until(lambda: any("0 of the 1 replicas" in str(error) for error in ledger.errors), "too few replicas", 60)
    come_back(master)
    group.wait_until_whole()
    made = len(ledger.kinds["own0"])
    wait_until(lambda: len(ledger.kinds["own0"]) > made + 5 or bool(ledger.failures), "its sessions go on", 60)


@pytest.mark.parametrize("face", first(1, FACES))  # the other one is behind sentinels, below
def test_writers_go_on_when_masters_of_the_cluster_are_lost(face: str) -> None:
    ledger = Ledger()
    with valkey_cluster(masters=3, replicas=1, appendonly=True) as cluster:
        with Writers(face, cluster.url, ledger, turns, every_kind, count=6, wait_replicas=1, timeout=3):
            ledger.progress(100)
            lose(cluster.master_of(OWN), face, ledger, cluster)
            ledger.progress(100)
            # What was acknowledged since must be on the replica again: it is all there is after this.
            dead = cluster.kill_master_of(OWN)
            cluster.wait_until_whole()
            dead.restart()
        assert {error.outcome for error in ledger.errors if "of the 1 replicas" in str(error)} == {"unknown"}
        checked(ledger, cluster)


@pytest.mark.parametrize("face", first(1, FACES[::-1]))
def test_writers_go_on_after_failovers_by_sentinels(face: str) -> None:
    ledger = Ledger()
    with valkey_sentinel(replicas=1, appendonly=True) as watched:
        with Writers(face, watched.url, ledger, turns, every_kind, count=6, wait_replicas=1, timeout=3):
            ledger.progress(100)
            lose(watched.master, face, ledger, watched)
            ledger.progress(100)
            dead = watched.kill_master()
            watched.wait_until_whole()
            dead.restart()
        assert {error.outcome for error in ledger.errors if "of the 1 replicas" in str(error)} == {"unknown"}
        checked(ledger, watched)
        with everturn.open(watched.url, timeout=20) as store:
            watched.sentinels[0].pause()  # it is asked first, by this store and by one that opens
            say(store, "a", "1")
            everturn.open(watched.url, timeout=8).close()


@pytest.mark.parametrize("face", FACES)
def test_replicas_are_waited_for_and_too_few_is_unknown(face: str) -> None:
    """The script and WAIT go together, so a replay must write, too: else it would be counted for what it did not do.

    WAIT takes half of the time-out; a fifth as much is left for its answer, which a busy machine may need.
    """
    seconds = 6

    def blocking(url: str, key: str) -> Any:
        with everturn.open(url, wait_replicas=2, timeout=seconds, warnings="off") as store:
            return say(store, "a", key, key=key)

    async def awaited(url: str, key: str) -> Any:
        async with await everturn.open_async(url, wait_replicas=2, timeout=seconds, warnings="off") as store:
            calls = [store.add_messages(name, [user(key)], key=key) for name in ("b", "a", "c")]  # in one batch
            _, receipt, _ = await asyncio.gather(*calls, return_exceptions=True)
            if isinstance(receipt, BaseException):
                raise receipt
            return receipt

    def write(key: str) -> Any:
        return asyncio.run(awaited(server.url, key)) if face == "tasks" else blocking(server.url, key)

    def on_replicas() -> list[int]:
        found = []
        for replica in server.replicas:
            with redis.Redis.from_url(replica.url) as client:
                found.append(client.xlen("everturn:{:a}:log"))
        return found

    with valkey_server(replicas=2, appendonly=True) as server:
        assert not write("one").replayed
        assert on_replicas() == [1, 1]
        server.replicas[0].pause()
        for _ in range(2):  # a replay proves nothing either
            began = time.monotonic()
            with pytest.raises(MemoryStoreBackendError, match="1 of the 2 replicas") as caught:
                write("two")
            assert time.monotonic() - began < seconds + SLACK
            assert caught.value.outcome == "unknown"
        server.replicas[0].resume()
        assert write("two").replayed
        assert on_replicas() == [2, 2]


def test_a_cluster_lists_the_sessions_of_every_master() -> None:
    with (
        valkey_cluster(masters=3, replicas=0, appendonly=True) as cluster,
        everturn.open(cluster.url) as store,
    ):
        names = [f"s{number:02}" for number in range(40)]
        for name in names:
            say(store, name, name)
        assert [session.session_id for session in store.sessions(limit=100).sessions] == names
        page, found = store.sessions(limit=7), []
        while True:
            found += [session.session_id for session in page.sessions]
            if page.next is None:
                break
            page = store.sessions(limit=7, page=page.next)
        assert found == names
        store.fork("s00", "s99")
        assert words(store, "s99") == ["s00"]


def test_a_slot_that_moves_is_followed() -> None:
    with (
        valkey_cluster(masters=2, replicas=0, appendonly=True) as cluster,
        everturn.open(cluster.url, timeout=10) as store,
    ):
        full_session(store)
        say(store, "b", "1")  # in another slot, or not: it must not notice
        slot = cluster.masters[0].command("CLUSTER", "KEYSLOT", "everturn:{:a}:meta")
        here = cluster.master_of("everturn:{:a}:meta")
        there = next(node for node in cluster.masters if node is not here)
        there.command("CLUSTER", "SETSLOT", slot, "IMPORTING", here.node_id)
        here.command("CLUSTER", "SETSLOT", slot, "MIGRATING", there.node_id)
        keys: Any = here.command("CLUSTER", "GETKEYSINSLOT", slot, 10)
        for key in keys:
            here.command("MIGRATE", "127.0.0.1", there.port, key, 0, 1000)
        say(store, "a", "2")  # asks there
        assert words(store, "a") == ["1", "2"]
        store.erase("a")  # a session of which only some keys are there has to wait until the slot has moved
        waiting = threading.Thread(target=say, args=(store, "a", "1"))
        waiting.start()
        for node in (there, here):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", there.node_id)
        waiting.join()
        say(store, "a", "3")
        assert words(store, "a") == ["1", "3"]
        assert words(store, "b") == ["1"]
