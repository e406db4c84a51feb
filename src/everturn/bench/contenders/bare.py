"""The bare driver on SQLite: apsw and `json`, as a careful person writes it by hand, and no more.

One transaction per turn, stdlib `json`, WAL, synchronous=FULL, statements prepared once by apsw's cache.
The next seq is kept in memory, so it does not even read before it writes. It promises none of what everturn
does: no version, no call id, no second process, no snapshot, nothing checked on the way in or out.
"""

import json
import os
import time
from collections import defaultdict
from pathlib import Path

import apsw

from everturn.bench.contenders.contender import BlockingContender
from everturn.bench.workload import PlainMessage, encode

INSERT = "INSERT INTO log (session, seq, body) VALUES (?, ?, ?)"

TABLES = """
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY, session_id, life, version, last_seq, head, cleared, floor, kept, messages, bytes,
    created_at, changed_at);
CREATE TABLE entries (id INTEGER PRIMARY KEY, turn, kind, created_at, checksum, body, count, checksums);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY, kind, call, first_seq, count, created_at, head, cleared, floor, kept, messages);
"""


def connect(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open the database in this directory at everturn's durability; make the table if it is new."""
    connection = apsw.Connection(str(path / "bare.db"), vfs=vfs)
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS log ("
        " session TEXT, seq INTEGER, body TEXT NOT NULL, PRIMARY KEY (session, seq)) WITHOUT ROWID"
    )
    return connection


class BareSqlite(BlockingContender):
    """The messages alone: two rows per turn in one clustered table."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        """Open the database in this empty directory."""
        self._connection = connect(path, vfs=vfs)
        self._last: defaultdict[str, int] = defaultdict(int)

    def add(self, session: str, turn: list[PlainMessage]) -> None:
        """Encode and commit one turn."""
        last = self._last[session]
        rows = [(session, seq, encode(message)) for seq, message in enumerate(turn, last + 1)]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("COMMIT")
        self._last[session] = last + len(turn)

    def read(self, session: str) -> list[object]:
        """Rows in order, each through `json.loads`."""
        rows = self._connection.execute("SELECT body FROM log WHERE session = ? ORDER BY seq", (session,))
        return [json.loads(body) for (body,) in rows]

    def latest(self, session: str, count: int) -> list[object]:
        """The last rows of the index, turned round."""
        rows = self._connection.execute(
            "SELECT body FROM log WHERE session = ? ORDER BY seq DESC LIMIT ?", (session, count)
        )
        return [json.loads(body) for (body,) in rows][::-1]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class BareSqliteSameRows(BareSqlite):
    """The rows everturn writes, by hand: the turn, a line of the change log, and the session's own row.

    The same bytes in the same number of rows, in tables keyed by plain integers as everturn's are, but
    without its indexes, its constraints, its reads and its checks.
    """

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        """Open the database and add the tables."""
        super().__init__(path, vfs=vfs)
        self._connection.execute(TABLES)
        self._numbers: dict[str, int] = {}
        self._versions: defaultdict[str, int] = defaultdict(int)

    def add(self, session: str, turn: list[PlainMessage]) -> None:
        """Encode and commit one turn."""
        if session not in self._numbers:
            self._create(session)
        execute, number, now = self._connection.execute, self._numbers[session], time.time()
        first, version = self._last[session] + 1, self._versions[session] + 1
        last = first + len(turn) - 1
        bodies = [encode(message) for message in turn]
        base = number << 32
        execute("BEGIN IMMEDIATE")
        checksums = b"sum." * len(bodies)
        execute(
            "INSERT INTO entries VALUES (?, ?, 'message', ?, 2147483647, ?, ?, ?)",
            (base + first, first, now, "\n".join(bodies), len(bodies), checksums),
        )
        execute(
            "INSERT INTO changes VALUES (?, 'append', ?, ?, ?, ?, ?, 0, 0, NULL, ?)",
            (base + version, os.urandom(16), first, len(turn), now, last, last),
        )
        execute(
            "UPDATE sessions SET version = ?, last_seq = ?, head = ?, messages = ?, bytes = bytes + ?,"
            " changed_at = ? WHERE no = ?",
            (version, last, last, last, sum(map(len, bodies)), now, number),
        )
        execute("COMMIT")
        self._last[session], self._versions[session] = last, version

    def _create(self, session_id: str) -> None:
        number = self._numbers[session_id] = len(self._numbers) + 1
        self._connection.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, 0, 0, 0, 0, 0, NULL, 0, 0, ?, 0)",
            (number, session_id, os.urandom(16).hex(), time.time()),
        )

    def read(self, session: str) -> list[object]:
        """Rows in order, each line through `json.loads`."""
        base = self._numbers[session] << 32
        rows = self._connection.execute(
            "SELECT body FROM entries WHERE id BETWEEN ? AND ? ORDER BY id", (base, base + 0xFFFFFFFF)
        )
        return [json.loads(line) for (body,) in rows for line in body.split("\n")]

    def latest(self, session: str, count: int) -> list[object]:
        """The last rows, each of one turn of two messages, turned round."""
        base = self._numbers[session] << 32
        rows = self._connection.execute(
            "SELECT body FROM entries WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?",
            (base, base + 0xFFFFFFFF, count // 2),
        )
        return [json.loads(line) for (body,) in reversed(list(rows)) for line in body.split("\n")]
