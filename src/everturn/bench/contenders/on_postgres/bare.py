"""The bare driver on PostgreSQL: one INSERT of a turn's rows with psycopg and `json`, as a careful person writes it.

psycopg prepares the statement by itself. The next seq is kept in memory: it does not even read before it writes. No
version, no call id, no second process.
"""

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Sequence

import psycopg
from psycopg_pool import AsyncConnectionPool

from everturn.bench.contenders.contender import BlockingContender
from everturn.bench.contenders.timing import timed_tasks
from everturn.bench.workload import PlainMessage, encode, messages

CONNECTIONS = 10  # as everturn's default
TABLE = """
CREATE TABLE IF NOT EXISTS everturn_bench_log (
    session text COLLATE "C", seq bigint, body text COLLATE "C" NOT NULL, PRIMARY KEY (session, seq))
"""
INSERT = "INSERT INTO everturn_bench_log (session, seq, body) VALUES (%s, %s, %s), (%s, %s, %s)"
COPY = "COPY everturn_bench_log (session, seq, body) FROM STDIN"
LATEST = "SELECT body FROM everturn_bench_log WHERE session = %s ORDER BY seq DESC LIMIT %s"


class BarePostgres(BlockingContender):
    """One table, a row for each message; a turn is one statement and one commit."""

    def __init__(self, url: str) -> None:
        """Connect; make the table if it is new."""
        self._connection = psycopg.connect(url, autocommit=True)
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(1)")  # its twin does the same
            self._connection.execute(TABLE)
        self._url = url
        self._pool: AsyncConnectionPool | None = None
        self._runner = asyncio.Runner()
        self._last: defaultdict[str, int] = defaultdict(int)

    def session(self, session_id: str) -> str:
        """The session's name in the table. Another process with the same table has other names."""
        return f"{os.getpid()} {session_id}"

    def add(self, session: str, turn: list[PlainMessage]) -> None:
        self._connection.execute(INSERT, self._rows(session, turn))

    def fill(self, session_id: str, *, first: int, count: int) -> None:
        session = self.session(session_id)
        with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for message in messages(count, first=first):
                self._last[session] += 1
                copy.write_row((session, self._last[session], encode(message)))
        self._connection.execute("ANALYZE everturn_bench_log")

    def read(self, session: str) -> list[object]:
        rows = self._connection.execute(
            "SELECT body FROM everturn_bench_log WHERE session = %s ORDER BY seq", (session,)
        )
        return [json.loads(body) for (body,) in rows]

    def latest(self, session: str, count: int) -> list[object]:
        rows = self._connection.execute(LATEST, (session, count), prepare=True)
        return [json.loads(body) for (body,) in rows][::-1]

    def _rows(self, session: str, turn: list[PlainMessage]) -> list[object]:
        last = self._last[session]
        self._last[session] = last + len(turn)
        return [part for seq, message in enumerate(turn, last + 1) for part in (session, seq, encode(message))]

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        return self._runner.run(self._append_from_tasks(ids, self.prepared(turns)))

    async def _append_from_tasks(self, ids: Sequence[str], turns: list[list[PlainMessage]]) -> float:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, kwargs={"autocommit": True}
            )
            await self._pool.open(wait=True)
        return await timed_tasks(self._insert, ids, turns)

    async def _insert(self, session_id: str, turn: list[PlainMessage]) -> None:
        assert self._pool
        async with self._pool.connection() as connection:
            await connection.execute(INSERT, self._rows(self.session(session_id), turn))

    def close(self) -> None:
        """Close the connections. The server may be someone's own: nothing is left there."""
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(1)")
            self._connection.execute("DELETE FROM everturn_bench_log WHERE session = ANY(%s)", (list(self._last),))
            if not self._connection.execute("SELECT FROM everturn_bench_log LIMIT 1").fetchall():
                self._connection.execute("DROP TABLE everturn_bench_log")
        self._connection.close()
        if self._pool is not None:
            self._runner.run(self._pool.close())
        self._runner.close()
