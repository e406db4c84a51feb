"""Renewal of leases in the background, and the end of a lease as a `with` block sees it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from everturn import LeaseLost, MemoryStoreBackendError
from everturn.backend import LeaseRequest
from everturn.testing.servers import wait_until
from tests.store.speech import say, words

SHORT = 3.0  # seconds: on a busy machine, a third of it is soon over


def test_a_shorter_lease_is_renewed_in_its_own_time(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests_of(store, monkeypatch)
    with store.lease("a", seconds=600, renew=True) as lease:
        time.sleep(0.01)  # the background waits for a third of 600 s now, whoever comes first
        lease.renew(seconds=SHORT)
        wait_until(lambda: [request.seconds for request in asked].count(SHORT) > 4, "it is renewed again and again")
        assert say(store, "a", "still mine", lease=lease).version == 1
    assert words(store, "a") == ["still mine"]


@pytest.mark.where(blocking=True)
def test_a_renewal_under_way_does_not_shorten_a_longer_one(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, done = store._operations.backend, []
    send, under_way, goes_on = backend.lease, threading.Event(), threading.Event()

    async def slow(request: LeaseRequest, by: float) -> Any:
        if (request.action, request.seconds) == ("renew", SHORT):
            under_way.set()
            assert goes_on.wait(50)
        outcome = await send(request, by)
        done.append(request.seconds)
        return outcome

    monkeypatch.setattr(backend, "lease", slow)
    with store.lease("a", seconds=SHORT, renew=True) as lease:
        assert under_way.wait(50)
        lease.renew(seconds=600)
        goes_on.set()
        wait_until(lambda: SHORT in done and done[-1] == 600, "the longer one is asked for again")


def test_a_released_lease_is_not_entered_again(store: Any) -> None:
    lease = store.lease("a")
    with lease:
        pass
    with pytest.raises(LeaseLost), lease:
        pytest.fail("nothing is held here")


def test_nobody_renews_a_lease_whose_time_is_over(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = store.lease("a", seconds=SHORT, renew=True)

    async def lease_fails(*_: Any) -> Any:
        raise MemoryStoreBackendError("the server is gone", outcome="not_written")

    monkeypatch.setattr(store._operations.backend, "lease", lease_fails)
    renewer = getattr(lease, "lease", lease)._renewer
    wait_until(lambda: not renewer.is_alive() if isinstance(renewer, threading.Thread) else renewer.done(), "it ends")
    assert lease.is_lost


def requests_of(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[LeaseRequest]:
    """The requests about leases that the store makes from now on."""
    backend, asked = store._operations.backend, []
    send = backend.lease

    async def told(request: LeaseRequest, by: float) -> Any:
        asked.append(request)
        return await send(request, by)

    monkeypatch.setattr(backend, "lease", told)
    return asked
