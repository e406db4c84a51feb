"""A master is lost that gave a lease and began an effect: the cases of docs/how-to/one-worker-one-effect.md."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import everturn
from everturn import LeaseHeld, LeaseLost, MemoryStoreBackendError
from everturn.testing.servers import ValkeyCluster, valkey_cluster, valkey_sentinel
from tests.store.speech import say, words
from tests.tiers import first

LONG = 600  # seconds: no lease ends by time here
META = "everturn:{:a}:meta"
GROUPS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "sentinel": lambda: valkey_sentinel(replicas=1, appendonly=True),
    "cluster": lambda: valkey_cluster(masters=3, replicas=1, appendonly=True),
}


def test_a_failover_may_lose_a_lease_and_an_effect_and_its_holder_is_fenced_off() -> None:
    with valkey_sentinel(replicas=1, appendonly=True) as watched:
        with everturn.open(watched.url, wait_replicas=1, timeout=10, warnings="off") as careful:
            say(careful, "a", "1")
        (replica,) = watched.replicas
        replica.kill()  # so that it lacks everything from here on
        with everturn.open(watched.url, timeout=60, warnings="off") as store:
            lost = store.lease("a", seconds=LONG)
            assert store.begin_effect("a", "refund", lease=lost).status == "new"
            say(store, "a", "2", lease=lost)
            watched.kill_master()
            replica.restart()
            watched.wait_until_whole()
            with everturn.open(watched.url, timeout=60, warnings="off") as other:
                lease = other.lease("a", seconds=LONG)  # the first one believes to have it
                assert lease.token == lost.token
                assert other.begin_effect("a", "refund", lease=lease).status == "new"  # a second time
                with pytest.raises(LeaseLost):
                    say(store, "a", "3", lease=lost)
                say(other, "a", "4", lease=lease)
                assert words(store, "a") == ["1", "4"]


@pytest.mark.parametrize("kind", first(1, GROUPS))
def test_a_lease_and_an_effect_that_a_replica_has_outlast_a_failover(kind: str) -> None:
    with (
        GROUPS[kind]() as group,
        everturn.open(group.url, timeout=60, warnings="off") as other,
        everturn.open(group.url, wait_replicas=1, timeout=3, warnings="off") as store,
    ):
        lease = store.lease("a", seconds=LONG)
        assert store.begin_effect("a", "refund", lease=lease).status == "new"
        if isinstance(group, ValkeyCluster):
            group.kill_master_of(META)
        else:
            group.kill_master()
        group.wait_until_whole()
        with pytest.raises(LeaseHeld):
            other.lease("a")
        assert other.begin_effect("a", "refund").status == "started"
        say(other, "a", "1", lease=lease.token)  # its holder may go on
        # The promoted one has nobody to copy to: it is not said that this effect was begun.
        with pytest.raises(MemoryStoreBackendError, match="0 of the 1 replicas") as caught:
            store.begin_effect("a", "mail")
        assert caught.value.outcome == "unknown"
