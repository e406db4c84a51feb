"""The servers that a whole run shares: each is started when a test first asks for it, and gone when the run ends."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

import everturn
from everturn.backends.dynamodb.client import TableAddress, driver_of
from everturn.testing.servers import (
    DynamoDBServer,
    PostgresServer,
    ValkeyCluster,
    ValkeyServer,
    dynamodb_server,
    postgres_server,
    valkey_cluster,
    valkey_server,
)
from everturn.testing.servers.dynamodb import CREDENTIALS
from tests.integration.toy_backend.installing import installed
from tests.store.places.sqlite import Beside


class Servers:
    """With settings that no store warns of, and nobody's but the tests': whoever comes may empty them."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @cached_property
    def valkey(self) -> ValkeyServer:
        return self._stack.enter_context(valkey_server(appendonly=True))

    @cached_property
    def cluster(self) -> ValkeyCluster:
        return self._stack.enter_context(valkey_cluster(masters=3, replicas=0, appendonly=True))

    @cached_property
    def postgres(self) -> PostgresServer:
        return self._stack.enter_context(postgres_server(max_connections=200))

    @cached_property
    def beside_postgres(self) -> psycopg.Connection[Any]:
        """A connection of our own to it, where there is a schema to look at."""
        everturn.open(self.postgres.url).close()
        return self._stack.enter_context(psycopg.connect(self.postgres.url, autocommit=True))

    @cached_property
    def dynamodb(self) -> DynamoDBServer:
        server = self._stack.enter_context(dynamodb_server())
        place = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_DYNAMODB": server.endpoint}
        os.environ.update({**CREDENTIALS, **place})
        return server

    @cached_property
    def beside_dynamodb(self) -> Any:
        """A client of our own of it."""
        return driver_of(TableAddress("everturn", "us-east-1", self.dynamodb.endpoint))

    @cached_property
    def beside_sqlite(self) -> Beside:
        """A process that looks into files: in ours, a second SQLite would drop the locks of the first."""
        return self._stack.enter_context(Beside())

    @cached_property
    def toy(self) -> str:
        """The package of a third party's backend, installed for as long as the run lasts."""
        site = Path(self._stack.enter_context(TemporaryDirectory(prefix="everturn-toy-")))
        self._stack.enter_context(installed(site))
        return "everturn_toy"

    def close(self) -> None:
        self._stack.close()
