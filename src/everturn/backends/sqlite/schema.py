"""Schema versions: brings a database file to the current schema, or refuses it untouched.

Each migration is a file schema/NNN.sql. All pending ones, and their records, are one transaction.
"""

from __future__ import annotations

import math
import time
from importlib.resources import files
from typing import Any
from zlib import adler32

import apsw

from everturn import events
from everturn.backends.sqlite import row_checksums
from everturn.backends.sqlite.connections import Connection
from everturn.errors import InvalidInput, SchemaTooNew

APPLICATION_ID = 0x65767274  # "evrt": tells `file` and other everturns whose database this is
CURRENT = 6


def refuse_foreign(db: apsw.Connection, path: str) -> None:
    """Raise InvalidInput or SchemaTooNew for a file that is not ours to change, before anything in it is changed."""
    _found(db, path, CURRENT)


def refuse_pending(db: apsw.Connection, path: str) -> None:
    """Raise InvalidInput for a file that would have to be changed before it can be read."""
    found = _found(db, path, CURRENT)
    if found == 0:
        raise InvalidInput("is empty: nothing has been stored in it yet", path=path)
    if found < CURRENT:
        raise InvalidInput(
            f"was written by an earlier everturn (schema {found}, now {CURRENT}), and looking does not change it. Any "
            "change brings it up to date: everturn compact, for one",
            path=path,
        )


def is_earlier(db: apsw.Connection, path: str) -> bool:
    """Whether the file was written by an earlier everturn. Raises SchemaTooNew and InvalidInput as `migrate` does."""
    return 0 < _found(db, path, CURRENT) < CURRENT


def is_pending(db: apsw.Connection, path: str) -> bool:
    """Whether migrations are pending."""
    return _found(db, path, CURRENT) != CURRENT


def migrate(db: apsw.Connection, path: str, current: int = CURRENT) -> None:
    """Apply the pending migrations, all or none. Processes that do this at once wait for each other's write lock.

    Raises SchemaTooNew for a file of a newer everturn and InvalidInput for another program's, or for one that is too
    damaged; they stay as they are. Once begun, it takes the time it needs: version 3 rewrites every row.
    """
    if _found(db, path, current) == current:
        return
    from importlib.metadata import version as package_version  # takes 30 ms, and a file needs it once

    db.execute("BEGIN IMMEDIATE")
    try:
        if isinstance(db, Connection):
            db.patience.deadline = math.inf
        offer_checksums(db)
        found = _found(db, path, current)  # again: another process may have been faster
        if found == 0:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(_CREATE_RECORD)
        ours = package_version("everturn")
        for number in range(found + 1, current + 1):
            db.execute(files(__package__).joinpath(f"schema/{number:03}.sql").read_text("utf-8")).fetchall()
            db.execute(_INSERT_RECORD, (number, time.time(), ours))
        db.execute("COMMIT")
        if found:
            events.tell(events.MIGRATED, events.Source("sqlite", f"sqlite:///{path}"), found=found, now=current)
    except UnicodeDecodeError as exc:
        db.execute("ROLLBACK")
        raise InvalidInput(
            f"is of an earlier everturn, and too damaged to be migrated: a text in it cannot be read ({exc}). "
            "Keep it, and restore a backup",
            path=path,
        ) from exc
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def offer_checksums(db: apsw.Connection) -> None:
    """Give a connection the functions that migrations compute checksums with."""
    db.create_scalar_function("everturn_row", row_checksums.of_row, deterministic=True)
    db.create_scalar_function("everturn_lines", _lines_since_version_3, deterministic=True)


def _lines_since_version_3(*row: Any) -> bytes | None:
    """Make the column `checksums` of a row of version 2: it had Adler-32 of every line but the last, four bytes each.

    In a damaged row, a line that was damaged gets a checksum that it does not match; and so does the last one, of which
    nothing tells.
    """
    checksum, body, checksums, seq, turn, count, created_at = row
    if checksums is None:
        return None
    lines = body.split(b"\n")
    found = [adler32(line) for line in lines]
    if len(lines) == count and len(checksums) == 4 * (count - 1) and adler32(body) != checksum:
        known = [int.from_bytes(checksums[at : at + 4], "big") for at in range(0, len(checksums), 4)]
        bad = [now != then for now, then in zip(found, known, strict=False)]
        found = [check + is_bad for check, is_bad in zip(found, [*bad, True], strict=True)]
    return row_checksums.of_lines(found, row_checksums.column_sum(seq, turn, count, created_at))


_CREATE_RECORD = """
    CREATE TABLE schema_versions (
        version    INTEGER PRIMARY KEY,
        applied_at REAL NOT NULL,
        everturn   TEXT NOT NULL
    ) STRICT
"""
_INSERT_RECORD = "INSERT INTO schema_versions (version, applied_at, everturn) VALUES (?, ?, ?)"


def _found(db: apsw.Connection, path: str, current: int) -> int:
    with db:  # one transaction: else another process's migration may come between two statements
        found = _look(db, path, current)
    return found  # noqa: RET504 - mypy cannot see that `with db` lets errors through


def _look(db: apsw.Connection, path: str, current: int) -> int:
    application_id = db.pragma("application_id")
    if application_id not in (0, APPLICATION_ID):
        raise InvalidInput("is a SQLite database of another program; choose another path", path=path)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "schema_versions" not in tables or application_id != APPLICATION_ID:
        if tables:
            raise InvalidInput(
                "is a SQLite database with tables that are not everturn's; choose another path", path=path
            )
        return 0
    found: int | None = db.execute("SELECT max(version) FROM schema_versions").get
    if not isinstance(found, int):
        raise InvalidInput(
            "its table schema_versions is empty, so that its stored form is not known: it was emptied by hand, or "
            "damaged. Restore a backup, or put the row back",
            path=path,
        )
    if found > current:
        raise SchemaTooNew(
            f"{path} has schema version {found}, this everturn knows up to {current}; it was left untouched. "
            "Upgrade everturn to open it",
            found=found,
            supported=current,
        )
    return found


# --- definitions, for verify -----------------------------------------------------------------------------------------


def parts(db: apsw.Connection) -> dict[str, str]:
    """Read the definitions of tables, indexes and views, by kind and name, with blanks normalised."""
    rows = db.execute(
        "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB) "
        "FROM sqlite_schema WHERE sql IS NOT NULL"
    )
    texts = ([" ".join(part.decode("utf-8", "replace").split()) for part in row] for row in rows)
    return {f"{kind} {name}": f"{table}: {sql}" for kind, name, table, sql in texts}


def wanted() -> dict[str, str]:
    """Read the same definitions of a new file: those that every file should have."""
    db = apsw.Connection(":memory:")
    try:
        migrate(db, "memory")
        return parts(db)
    finally:
        db.close()
