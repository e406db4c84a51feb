"""What the tests of DynamoDB share: a stand-in, a table for each test, a proxy between them, a record of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import everturn
from everturn.backends.dynamodb import client
from everturn.backends.dynamodb.permissions import actions_of
from everturn.testing.faults.proxy import FaultProxy
from tests.store.places import Servers


@pytest.fixture
def url(servers: Servers) -> str:
    """The URL of a table of the test's own."""
    return servers.dynamodb.url_of(f"everturn-{uuid4().hex}")


@pytest.fixture
def opened(url: str) -> Iterator[Callable[..., Any]]:
    """Opens stores on that table; they are closed when the test ends."""
    stores: list[Any] = []

    def open_store(at: str = url, **options: Any) -> Any:
        stores.append(everturn.open(at, **options))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def proxy(servers: Servers) -> Iterator[FaultProxy]:
    with FaultProxy(servers.dynamodb.endpoint) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(url: str, servers: Servers, proxy: FaultProxy) -> str:
    """The URL of the same table, by way of the proxy."""
    return url.replace(servers.dynamodb.endpoint, proxy.url.rstrip("/"))


@pytest.fixture
def bare_url(url: str) -> str:
    """The URL of the same table. Opening it creates nothing."""
    return url.replace("&create=true", "")


class Requests:
    """The requests of all clients that are made meanwhile: by operation, and the permissions that they need."""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        self.actions: set[str] = set()

    def note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.operations[model.name] += 1
        self.actions.update(actions_of(model.name, params))

    def forget(self) -> None:
        self.operations.clear()
        self.actions.clear()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    noted = Requests()
    make = client.driver_of

    def driver_of(address: client.TableAddress, **credentials: str) -> Any:
        driver = make(address, **credentials)
        driver.meta.events.register("provide-client-params.dynamodb", noted.note)
        return driver

    monkeypatch.setattr(client, "driver_of", driver_of)
    return noted
