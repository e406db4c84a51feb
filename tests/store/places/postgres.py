"""PostgreSQL as a place: one server for all tests, emptied before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.store.places.place import Place, Stored

TABLES = (
    "sessions",
    "names",
    "entries",
    "jumps",
    "snapshots",
    "undo_steps",
    "changes",
    "tombstones",
    "leases",
    "effects",
    "effect_keys",
)


class PostgresEditor:
    """See docs/storage-postgres.md."""

    def __init__(self, url: str, beside: psycopg.Connection[Any]) -> None:
        self._url = url
        self._beside = beside

    def _sql(self, statement: str, **values: Any) -> Any:
        it = "namespace = '' AND session_id = %(name)s AND NOT ended"
        statement = statement.replace(":no", f"(SELECT no FROM everturn.sessions WHERE {it})")
        return self._beside.execute(statement, values)

    def entry(self, session_id: str, seq: int) -> Stored:
        columns = "kind, body, checksum, turn, created_at"
        select = f"SELECT {columns} FROM everturn.entries WHERE session = :no AND seq = %(seq)s"
        kind, body, *rest = self._sql(select, name=session_id, seq=seq).fetchone()
        return Stored(kind, body.encode(), *rest)

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        """A `text` is UTF-8 without NUL; PostgreSQL itself refuses what is not."""
        body = entry.body.decode(errors="backslashreplace").replace("\0", "\\x00")
        # A checksum without a mark of its place is one that a test made up: it shall be right.
        marked = "%(checksum)s" if entry.checksum >= 2**32 else "%(checksum)s + everturn.place_v1({}, %(kind)s)"
        self._sql(
            "INSERT INTO everturn.entries AS e (session, seq, turn, created_at, checksum, kind, body)"
            " VALUES (:no, %(seq)s, %(turn)s, %(created_at)s,"
            f" {marked.format(':no, %(seq)s, %(turn)s, %(created_at)s')}, %(kind)s, %(body)s)"
            " ON CONFLICT (session, seq) DO UPDATE SET kind = %(kind)s, body = %(body)s,"
            f" checksum = {marked.format('e.session, e.seq, e.turn, e.created_at')}",
            name=session_id,
            seq=seq,
            turn=entry.turn,
            created_at=entry.created_at,
            checksum=entry.checksum,
            kind=entry.kind,
            body=body,
        )

    def drop_entry(self, session_id: str, seq: int) -> None:
        self._sql("DELETE FROM everturn.entries WHERE session = :no AND seq = %(seq)s", name=session_id, seq=seq)

    def drop_log(self, session_id: str) -> None:
        self._sql("DELETE FROM everturn.entries WHERE session = :no", name=session_id)

    def drop_session(self, session_id: str) -> None:
        self._sql("DELETE FROM everturn.sessions WHERE no = :no", name=session_id)

    def drop_change(self, session_id: str, version: int) -> None:
        delete = "DELETE FROM everturn.changes WHERE session = :no AND version = %(version)s"
        self._sql(delete, name=session_id, version=version)

    def set_state(self, session_id: str, **fields: int) -> None:
        columns = ", ".join(f"{name} = {value:d}" for name, value in fields.items())
        self._sql(f"UPDATE everturn.sessions SET {columns} WHERE no = :no", name=session_id)

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        """One that the session's row names. (One that nothing names is on no path: reads do not see it.)"""
        self._sql(
            "INSERT INTO everturn.jumps (session, seq, after, prior, seal) VALUES (:no, %(seq)s, %(after)s, 0, 0)"
            " ON CONFLICT (session, seq) DO UPDATE SET after = %(after)s",
            name=session_id,
            seq=seq,
            after=after,
        )
        self._sql("UPDATE everturn.sessions SET last_jump = %(seq)s WHERE no = :no", name=session_id, seq=seq)

    def move_snapshots(self, session_id: str, head: int) -> None:
        self._sql("UPDATE everturn.snapshots SET head = %(head)s WHERE session = :no", name=session_id, head=head)

    def move_undo_steps(self, session_id: str, head: int) -> None:
        self._sql("UPDATE everturn.undo_steps SET head = %(head)s WHERE session = :no", name=session_id, head=head)

    def entries(self) -> int:
        return int(self._sql("SELECT count(*) FROM everturn.entries").fetchone()[0])

    def remnants(self, *markers: str) -> dict[str, int]:
        """In the rows that anybody can see. (Dead ones leave the files with VACUUM.)"""
        rows = " UNION ALL ".join(f"SELECT row_to_json(t)::text AS line FROM everturn.{table} t" for table in TABLES)
        stored = "\n".join(line for (line,) in self._sql(rows).fetchall())
        return {marker: stored.count(marker) for marker in markers if marker in stored}

    def size(self) -> int:
        self._sql(f"VACUUM {', '.join(f'everturn.{table}' for table in TABLES)}")
        sizes = " + ".join(f"pg_table_size('everturn.{table}')" for table in TABLES)
        return int(self._sql(f"SELECT {sizes}").fetchone()[0])

    @contextmanager
    def reader(self) -> Iterator[Callable[[str], bool]]:
        with psycopg.connect(self._url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT count(*) FROM everturn.entries")
            select = "SELECT count(*) > 0 FROM everturn.entries WHERE strpos(body, %s) > 0"
            yield lambda text: bool(connection.execute(select, (text,)).fetchone()[0])


class Postgres(Place):
    far = True
    examples = 15

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # One transaction, so that it is synced once.
        self.servers.beside_postgres.execute("; ".join(f"DELETE FROM everturn.{table}" for table in TABLES))

    @property
    def url(self) -> str:
        return str(self.servers.postgres.url)

    @property
    def editor(self) -> PostgresEditor:
        return PostgresEditor(self.url, self.servers.beside_postgres)


class AsyncPostgres(Postgres):
    blocking = False
