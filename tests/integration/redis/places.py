"""The contract over Valkey: `pytest -p tests.integration.redis.places tests/contract` runs every test there.

The places of SQLite are replaced by those named in EVERTURN_PLACES (all of them, if it is not set).
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from typing import Any

import fakeredis

import everturn
from everturn.testing.servers import valkey_cluster, valkey_server
from tests.contract import places
from tests.contract.places import Awaited, Place

_running: dict[str, Any] = {}
_stack = ExitStack()
atexit.register(_stack.close)


def server() -> Any:
    if "server" not in _running:
        _running["server"] = _stack.enter_context(valkey_server(appendonly=True))
    return _running["server"]


def cluster() -> Any:
    if "cluster" not in _running:
        _running["cluster"] = _stack.enter_context(valkey_cluster(masters=3, replicas=0, appendonly=True))
    return _running["cluster"]


class Valkey(Place):
    """One server for all tests, emptied before each."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._empty()

    def _empty(self) -> None:
        server().command("FLUSHALL")

    @property
    def url(self) -> str:
        return str(server().url)


class AsyncValkey(Valkey):
    def _open(self, **options: Any) -> Any:
        return Awaited(self.loop.run(everturn.open_async(self.url, **options)), self.loop)


class Cluster(Valkey):
    def _empty(self) -> None:
        for node in cluster().nodes:
            node.command("FLUSHALL")

    @property
    def url(self) -> str:
        return str(cluster().url)


class AsyncCluster(Cluster, AsyncValkey):
    pass


class Fake(Valkey):
    """fakeredis, with Lua: no server at all."""

    def _empty(self) -> None:
        self._server = fakeredis.FakeServer()

    def _open(self, **options: Any) -> Any:
        client = fakeredis.FakeRedis(server=self._server, decode_responses=True)
        return everturn.from_client(client, **{"warnings": "off"} | options)


class AsyncFake(Fake):
    def _open(self, **options: Any) -> Any:
        async def opened() -> Any:
            return everturn.from_client(fakeredis.FakeAsyncRedis(server=self._server), **options)

        return Awaited(self.loop.run(opened()), self.loop)


ALL: dict[str, type[Place]] = {
    "valkey": Valkey,
    "valkey-async": AsyncValkey,
    "cluster": Cluster,
    "cluster-async": AsyncCluster,
    "fake": Fake,
    "fake-async": AsyncFake,
}
LASTING: dict[str, type[Place]] = {"valkey": Valkey, "valkey-async": AsyncValkey, "cluster": Cluster}


_wanted = os.environ.get("EVERTURN_PLACES", ",".join(ALL)).split(",")
places.ALL.clear()
places.ALL.update({name: ALL[name] for name in _wanted})
places.LASTING.clear()
places.LASTING.update({name: LASTING[name] for name in _wanted if name in LASTING})  # type: ignore[misc]  # no files
