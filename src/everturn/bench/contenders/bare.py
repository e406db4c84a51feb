"""The bare driver: what a careful person would write by hand with apsw and `json`, and no more.

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

from everturn.bench.workload import Message, encode
from everturn.bench.workload import turns as make_turns

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


class Bare:
    """The messages alone: two rows per turn in one clustered table."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        """Open the database in this empty directory."""
        self._connection = connect(path, vfs=vfs)
        self._last: defaultdict[str, int] = defaultdict(int)

    def append_turn(self, session_id: str, turn: list[Message]) -> None:
        """Encode and commit one turn."""
        last = self._last[session_id]
        rows = [(session_id, seq, encode(message)) for seq, message in enumerate(turn, last + 1)]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("COMMIT")
        self._last[session_id] = last + len(turn)

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        seconds = []
        for turn in make_turns(turns, first=first):
            start = time.perf_counter()
            self.append_turn(session_id, turn)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """Rows in order, each through `json.loads`."""
        start = time.perf_counter()
        rows = self._connection.execute("SELECT body FROM log WHERE session = ? ORDER BY seq", (session_id,))
        loaded = [json.loads(body) for (body,) in rows]
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        self._connection.close()


class BareSameRows(Bare):
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

    def append_turn(self, session_id: str, turn: list[Message]) -> None:
        """Encode and commit one turn."""
        if session_id not in self._numbers:
            self._create(session_id)
        execute, number, now = self._connection.execute, self._numbers[session_id], time.time()
        first, version = self._last[session_id] + 1, self._versions[session_id] + 1
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
        self._last[session_id], self._versions[session_id] = last, version

    def _create(self, session_id: str) -> None:
        number = self._numbers[session_id] = len(self._numbers) + 1
        self._connection.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, 0, 0, 0, 0, 0, NULL, 0, 0, ?, 0)",
            (number, session_id, os.urandom(16).hex(), time.time()),
        )

    def load(self, session_id: str) -> tuple[float, int]:
        """Rows in order, each line through `json.loads`."""
        base = self._numbers[session_id] << 32
        start = time.perf_counter()
        rows = self._connection.execute(
            "SELECT body FROM entries WHERE id BETWEEN ? AND ? ORDER BY id", (base, base + 0xFFFFFFFF)
        )
        loaded = [json.loads(line) for (body,) in rows for line in body.split("\n")]
        return time.perf_counter() - start, len(loaded)
