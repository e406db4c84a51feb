"""Places of the campaigns: a SQLite file, and servers that are paused, killed, and fail over.

A replica has whatever was acknowledged (wait_replicas, synchronous_standby_names): a failover loses nothing that a
worker was told. docs/how-to/one-worker-one-effect.md says what happens without that.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import (
    DynamoDBServer,
    PostgresServer,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    dynamodb_server,
    postgres_server,
    valkey_cluster,
    valkey_sentinel,
    valkey_server,
    wait_until,
)
from everturn.testing.servers.dynamodb import CREDENTIALS
from tests.crash.effect_worker import session_of

PAUSE = (0.05, 1.0)  # seconds that a server says nothing


class Place:
    """Where a campaign keeps its sessions. `counts` has the faults that were made."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = {"timeout": 5, **options}
        self.counts: Counter[str] = Counter()

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        """Faults of its servers to choose from. Each returns its name when the servers are well again."""
        return []


def _paused(server: Any, dice: Random) -> str:
    server.pause()
    time.sleep(dice.uniform(*PAUSE))
    server.resume()
    return "pause"


class OneServer(Place):
    """A server alone: what it acknowledged is on its disk."""

    def __init__(self, server: ValkeyServer) -> None:
        super().__init__(server.url, warnings="off")
        self._server = server

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        return [lambda: _paused(self._server, dice), self._restarted]

    def _restarted(self) -> str:
        self._server.restart()
        return "restart"


class Sentinel(Place):
    """A master and its replica, watched by sentinels."""

    def __init__(self, group: ValkeySentinel) -> None:
        super().__init__(group.url, wait_replicas=1, warnings="off")
        self._group = group

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        return [lambda: _paused(self._group.master, dice), self._killed, self._silenced]

    def _killed(self) -> str:
        """Kill the master, and let it come back as a replica."""
        dead = self._group.kill_master()
        self._group.wait_until_whole()
        dead.restart()
        self._group.wait_until_whole()
        return "failover"

    def _silenced(self) -> str:
        """Stop the master until the other one has taken over: it comes back believing that it is still the master."""
        silent = self._group.master
        silent.pause()
        wait_until(lambda: self._group.master is not silent, "another master", 60)
        silent.resume()
        self._group.wait_until_whole()
        return "failover"


class Cluster(Place):
    """Three masters with a replica each."""

    def __init__(self, group: ValkeyCluster) -> None:
        super().__init__(group.url, wait_replicas=1, warnings="off")
        self._group = group

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        key = f"everturn:{{:{session_of(dice.randrange(1000))}}}:meta"
        return [
            lambda: _paused(self._group.master_of(key), dice),
            lambda: self._lost(key, ValkeyServer.kill, ValkeyServer.restart),
            lambda: self._lost(key, ValkeyServer.pause, ValkeyServer.resume),
        ]

    def _lost(self, key: str, go: Callable[[ValkeyServer], None], come_back: Callable[[ValkeyServer], None]) -> str:
        master = self._group.master_of(key)
        go(master)
        self._group.wait_until_whole()
        come_back(master)
        self._group.wait_until_whole()
        return "failover"


class Postgres(Place):
    """A primary and a standby that each commit waits for."""

    def __init__(self, primary: PostgresServer) -> None:
        (self._standby,) = primary.standbys
        self._primary = primary
        hosts = f"{primary.address},{self._standby.address}"
        super().__init__(f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write", warnings="off")

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        return [lambda: _paused(self._primary, dice), self._restarted, self._failed_over]

    def _restarted(self) -> str:
        self._primary.restart()
        return "restart"

    def _failed_over(self) -> str:
        """Kill the primary, promote the standby, and make the dead one anew as its standby."""
        dead, self._primary = self._primary, self._standby
        dead.kill()
        with psycopg.connect(self._primary.url, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
            shutil.rmtree(dead._data)
            dead.copy(self._primary)
            dead._configure()
            dead.restart()
            self._standby = dead
            following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            wait_until(lambda: connection.execute(following).fetchone() == (1,), "the standby is in sync")
        return "failover"


class DynamoDB(Place):
    """A stand-in behind a proxy. dynoxide keeps what it acknowledged; ministack is not killed."""

    def __init__(self, server: DynamoDBServer, proxy: FaultProxy) -> None:
        super().__init__(server.url_of("everturn", proxy.url.rstrip("/")))
        self._server = server
        self._proxy = proxy

    def faults(self, dice: Random) -> list[Callable[[], str]]:
        some = [lambda: _paused(self._server, dice), self._unanswered, self._cut]
        return [*some, self._killed] if self._server.is_durable else some

    def _killed(self) -> str:
        self._server.kill()
        self._server.restart()
        return "kill of the server"

    def _unanswered(self) -> str:
        """Keep the reply to the next change: its worker cannot know that it was made."""
        self._proxy.swallow_next_reply(matching=b"TransactWriteItems", then="close")
        return "lost reply"

    def _cut(self) -> str:
        self._proxy.cut()
        return "cut of all connections"


@contextmanager
def sqlite(folder: Path) -> Iterator[Place]:
    yield Place(f"sqlite:///{folder / 'memory.db'}")


@contextmanager
def valkey(_: Path) -> Iterator[Place]:
    with valkey_server(appendonly=True) as server:
        yield OneServer(server)


@contextmanager
def sentinel(_: Path) -> Iterator[Place]:
    with valkey_sentinel(replicas=1, appendonly=True) as group:
        yield Sentinel(group)


@contextmanager
def cluster(_: Path) -> Iterator[Place]:
    with valkey_cluster(masters=3, replicas=1, appendonly=True) as group:
        yield Cluster(group)


@contextmanager
def postgres(_: Path) -> Iterator[Place]:
    with postgres_server(standbys=1, synchronous_standby_names="*") as server:
        yield Postgres(server)


@contextmanager
def dynamodb(_: Path) -> Iterator[Place]:
    os.environ.update(CREDENTIALS)
    with dynamodb_server() as server, FaultProxy(server.endpoint) as proxy:
        yield DynamoDB(server, proxy)


PLACES = {
    "sqlite": sqlite,
    "valkey": valkey,
    "sentinel": sentinel,
    "cluster": cluster,
    "postgres": postgres,
    "dynamodb": dynamodb,
}
