"""Clusters and watched masters that lose a master while writers run: they go on, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import everturn
from everturn.testing.servers import valkey_cluster, valkey_sentinel, wait_until
from tests.contract.speech import say, user, words
from tests.integration.redis.test_faults import several
from tests.integration.redis.test_stored_form import full_session


class Acknowledged:
    """What writers were told is kept, by session."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}

    def add(self, session_id: str, text: str) -> None:
        self.texts.setdefault(session_id, []).append(text)

    @property
    def count(self) -> int:
        return sum(map(len, self.texts.values()))

    def check(self, store: Any) -> None:
        """Each is there once, in the order in which its writer was told."""
        for session_id, texts in self.texts.items():
            assert words(store, session_id) == texts


def test_writers_go_on_when_a_master_of_the_cluster_is_killed() -> None:
    kept = Acknowledged()
    with (
        valkey_cluster(masters=3, replicas=1, appendonly=True) as cluster,
        everturn.open(cluster.url, wait_replicas=1, timeout=30) as store,
    ):

        def write(number: int) -> None:
            for turn in range(60):
                say(store, f"s{number}", f"{turn}")
                kept.add(f"s{number}", f"{turn}")

        def kill() -> None:
            wait_until(lambda: kept.count >= 60, "writers are under way")
            # The replica set of the dead master has nobody left to acknowledge: the rest is written without.
            cluster.kill_master_of("everturn:{:s0}:meta")
            store._engine.backend.sender.replicas = 0

        trouble = threading.Thread(target=kill)
        trouble.start()
        raised = several(6, write)
        trouble.join()
        assert raised == []
        assert kept.count == 360
        kept.check(store)
        assert store.verify().ok


def test_awaited_writers_go_on_when_a_master_of_the_cluster_is_killed() -> None:
    kept = Acknowledged()

    async def main(cluster: Any) -> None:
        async with await everturn.open_async(cluster.url, wait_replicas=1, timeout=30) as store:

            async def write(number: int) -> None:
                for turn in range(40):
                    await store.add_messages(f"s{number}", [user(f"{turn}")])
                    kept.add(f"s{number}", f"{turn}")

            async def kill() -> None:
                await asyncio.to_thread(wait_until, lambda: kept.count >= 100, "writers are under way")
                await asyncio.to_thread(cluster.kill_master_of, "everturn:{:s0}:meta")
                store._engine.backend.sender.replicas = 0  # type: ignore[attr-defined]

            await asyncio.gather(kill(), *(write(number) for number in range(20)))

    with valkey_cluster(masters=3, replicas=1, appendonly=True) as cluster:
        asyncio.run(main(cluster))
        assert kept.count == 800
        with everturn.open(cluster.url, timeout=20) as store:
            kept.check(store)


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


def test_writers_go_on_after_a_failover_by_sentinels() -> None:
    kept = Acknowledged()
    with (
        valkey_sentinel(replicas=1, appendonly=True) as watched,
        everturn.open(watched.url, wait_replicas=1, timeout=30) as store,
    ):

        def write(number: int) -> None:
            for turn in range(50):
                say(store, f"s{number}", f"{turn}")
                kept.add(f"s{number}", f"{turn}")

        def kill() -> None:
            wait_until(lambda: kept.count >= 50, "writers are under way")
            watched.master.kill()
            store._engine.backend.sender.replicas = 0

        trouble = threading.Thread(target=kill)
        trouble.start()
        raised = several(4, write)
        trouble.join()
        assert raised == []
        kept.check(store)
