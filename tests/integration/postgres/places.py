"""PostgreSQL as a place of the contract: one real server for the run, emptied before each test.

pytest -p tests.integration.postgres.places tests/contract      # the contract, over PostgreSQL as well
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from typing import Any

import psycopg

import everturn
from everturn.testing.servers import PostgresServer, postgres_server
from tests.contract import places
from tests.contract.places import Awaited, LoopThread, Place

TABLES = ("sessions", "entries", "jumps", "snapshots", "undo_steps", "changes")


@cache
def server() -> PostgresServer:
    """The server that the whole run shares."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server(max_connections=200))


@cache
def backdoor() -> psycopg.Connection[Any]:
    """A connection beside the store's own."""
    everturn.open(server().url).close()  # creates the schema
    connection = psycopg.connect(server().url, autocommit=True)
    atexit.register(connection.close)
    return connection


class Postgres(Place):
    def __init__(self, folder: Any, loop: LoopThread) -> None:
        super().__init__(folder, loop)
        for table in TABLES:
            backdoor().execute(f"DELETE FROM everturn.{table}")

    @property
    def url(self) -> str:
        return server().url


class AsyncPostgres(Postgres):
    def _open(self, **options: Any) -> Any:
        return Awaited(self.loop.run(everturn.open_async(self.url, **options)), self.loop)


places.ALL["postgres"] = Postgres
places.ALL["postgres-async"] = AsyncPostgres
places.LASTING["postgres"] = Postgres  # type: ignore[assignment]  # what needs a file is deselected
places.LASTING["postgres-async"] = AsyncPostgres  # type: ignore[assignment]
