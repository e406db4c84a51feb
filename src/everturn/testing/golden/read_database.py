"""Reads a database into its image, with apsw's SQLite, from a private copy. It compares nothing.

Only for a process of its own: Python's sqlite3 and apsw in one process break each other's locks.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from everturn.testing.golden import file_copy
from everturn.testing.golden.database_image import BadText, Cell, DatabaseImage, Row, SchemaObject, TableImage
from everturn.testing.golden.errors import GoldenError

_FACTS = ("user_version", "application_id", "encoding")
_MOST_PROBLEMS = 20
_FTS5 = re.compile(r"\bUSING\s+fts5\b", re.IGNORECASE)
# SQLite's own tables declare no key, but have one.
_KEYS = {"sqlite_sequence": (0,), "sqlite_stat1": (0, 1)}
_GENERATED = (2, 3)  # in table_xinfo's `hidden`: 1 is hidden indeed, these are virtual and stored generated columns
_FROM_THE_PROGRAM = re.compile(r"(no such|unknown) (function|collation sequence|tokenizer)")


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    """Open a private copy of the file. Errors of apsw inside the block become a GoldenError that names `path`."""
    with tempfile.TemporaryDirectory(prefix="everturn-golden-") as folder:
        twin = Path(folder) / "copy"
        file_copy.copy(path, twin)
        version = _writer(twin)
        db = apsw.Connection(str(twin))
        try:
            yield db
        except apsw.Error as exc:
            raise _explained(exc, path, version) from exc
        finally:
            db.close(force=True)


def read(path: Path) -> DatabaseImage:
    """Read the image of a file: everything that is committed. Raises GoldenError if it cannot be read."""
    with opened(path) as db:
        return image_of(db)


def image_of(db: apsw.Connection) -> DatabaseImage:
    facts: dict[str, int | str] = {name: db.pragma(name) for name in _FACTS}
    encoding = str(facts["encoding"])
    shadows = {name for name, kind in _table_list(db) if kind == "shadow"}
    for name in _bare_fts5(db, shadows):
        facts[f"index {name} agrees with its content"] = _agrees_with_content(db, name)
    problems = tuple(str(line) for (line,) in db.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})") if line != "ok")
    return DatabaseImage(
        facts=facts,
        schema={f"{each.kind} {each.name}": each for each in _schema(db, encoding, shadows)},
        tables={table.name: table for table in _tables(db, encoding, shadows)},
        problems=problems,
        dangling=_dangling(db),
    )


def _table_list(db: apsw.Connection) -> list[tuple[str, str]]:
    query = "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND name <> 'sqlite_schema' ORDER BY name"
    rows: list[Any] = db.execute(query).fetchall()
    return rows


def _schema(db: apsw.Connection, encoding: str, shadows: set[str]) -> Iterator[SchemaObject]:
    # An index without SQL belongs to a constraint, which is in the SQL of its table.
    query = "SELECT type, name, tbl_name, CAST(sql AS BLOB) FROM sqlite_schema WHERE sql IS NOT NULL"
    for kind, name, table, sql in db.execute(query):
        if table not in shadows:
            yield SchemaObject(kind, name, sql.decode(_codec(encoding), "backslashreplace"))


# --- rows ------------------------------------------------------------------------------------------------------------


def _tables(db: apsw.Connection, encoding: str, shadows: set[str]) -> Iterator[TableImage]:
    bare = _bare_fts5(db, shadows)
    for name, kind in _table_list(db):
        if kind == "table":
            table = _ordinary(db, name, encoding)
            yield _without_statistics_of(shadows, table) if name.startswith("sqlite_stat") else table
        elif kind == "virtual":
            shown = _index_of(db, name, encoding) if name in bare else _virtual(db, name, encoding)
            if shown is not None:
                yield shown


def _ordinary(db: apsw.Connection, name: str, encoding: str) -> TableImage:
    described = _columns(db, name)
    columns = tuple(column for column, _ in described)
    key = tuple(index for _, index in sorted((place, index) for index, (_, place) in enumerate(described) if place))
    return TableImage(name, columns, _KEYS.get(name, key), _rows(db, _quoted(name), columns, encoding))


def _columns(db: apsw.Connection, table: str) -> list[tuple[str, int]]:
    """List each column that stores or generates values, with its place in the primary key (0: not in it)."""
    query = "SELECT name, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid"
    return [(name, place) for name, place, hidden in db.execute(query, (table,)) if hidden in (0, *_GENERATED)]


def _virtual(db: apsw.Connection, name: str, encoding: str) -> TableImage | None:
    """Read a virtual table. None if its module is missing; its shadow tables are then read as ordinary tables."""
    try:
        columns = tuple(column for column, _ in _columns(db, name))
    except apsw.SQLError as exc:
        if "no such module" in str(exc):
            return None
        raise
    try:
        rows = _rows(db, _quoted(name), ("rowid", *columns), encoding)
        return TableImage(name, ("rowid", *columns), (0,), rows)
    except apsw.SQLError as exc:
        if "no such column: rowid" not in str(exc):
            raise
        return TableImage(name, columns, (), _rows(db, _quoted(name), columns, encoding))


def _bare_fts5(db: apsw.Connection, shadows: set[str]) -> list[str]:
    """List the FTS5 tables without content of their own: content='', or another table's."""
    query = (
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name"
    )
    tables: list[Any] = db.execute(query).fetchall()
    return [name for name, sql in tables if _FTS5.search(sql) and f"{name}_content" not in shadows]


def _agrees_with_content(db: apsw.Connection, name: str) -> str:
    """Whether the index of an FTS5 table agrees with the rows it indexes."""
    try:
        db.execute(f"INSERT INTO {_quoted(name)}({_quoted(name)}, rank) VALUES ('integrity-check', 1)")  # noqa: S608
    except apsw.CorruptError:
        return "no"
    return "yes"


def _index_of(db: apsw.Connection, name: str, encoding: str) -> TableImage:
    """Read the index of an FTS5 table that has no content."""
    columns = ("term", "doc", "col", "offset")
    db.execute(f"CREATE VIRTUAL TABLE temp.everturn_terms USING fts5vocab('main', {_text(name)}, 'instance')")
    try:
        return TableImage(name, columns, (), _rows(db, "temp.everturn_terms", columns, encoding))
    finally:
        db.execute("DROP TABLE temp.everturn_terms")


def _without_statistics_of(shadows: set[str], table: TableImage) -> TableImage:
    return TableImage(table.name, table.columns, table.key, [row for row in table.rows if row[0] not in shadows])


def _rows(db: apsw.Connection, table: str, columns: tuple[str, ...], encoding: str) -> list[Row]:
    names = [_quoted(column) for column in columns]
    if encoding == "UTF-8":
        try:
            return db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()  # noqa: S608 - quoted names
        except UnicodeDecodeError:
            pass
    # As bytes: SQLite would replace invalid characters when it converts UTF-16 to the UTF-8 that apsw asks for.
    cells = ", ".join(
        f"typeof({name}), CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" for name in names
    )
    codec = _codec(encoding)
    return [
        tuple(_decoded(kind, value, codec) for kind, value in zip(row[::2], row[1::2], strict=True))
        for row in db.execute(f"SELECT {cells} FROM {table}")  # noqa: S608 - quoted names
    ]


def _decoded(kind: str, value: Any, codec: str) -> Cell:
    if kind != "text":
        return value  # type: ignore[no-any-return] # apsw gives what SQLite has
    try:
        return bytes(value).decode(codec)
    except UnicodeDecodeError:
        return BadText(bytes(value))


def _codec(encoding: str) -> str:
    return {"UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}.get(encoding, "utf-8")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# --- faults of a file ------------------------------------------------------------------------------------------------


def _dangling(db: apsw.Connection) -> tuple[str, ...]:
    """Find rows whose foreign key refers to a missing row."""
    found = []
    try:
        for table, rowid, parent, number in db.execute("PRAGMA foreign_key_check"):
            columns = [row[3] for row in db.execute(f"PRAGMA foreign_key_list({_quoted(table)})") if row[0] == number]
            row = "a row" if rowid is None else f"row {rowid}"
            found.append(f"{table}: {row} refers by {', '.join(columns)} to a row of {parent} that is not there")
    except apsw.SQLError as exc:
        if "foreign key mismatch" not in str(exc):
            raise
        found.append(str(exc))
    return tuple(found)


def _writer(path: Path) -> int:
    """Read the version of the SQLite that wrote a file last, from its header."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(100)[96:100], "big")


def _explained(exc: apsw.Error, path: Path, version: int) -> GoldenError:
    here = apsw.sqlite_lib_version()
    if isinstance(exc, apsw.NotADBError):
        return GoldenError(f"{path} is not a SQLite database, or is encrypted: {exc}")
    if match := _FROM_THE_PROGRAM.search(str(exc)):
        return GoldenError(
            f"{path} cannot be read with SQLite alone ({exc}): its schema needs a {match[2]} that only your program "
            "has, and snapshot_db does not load your program to look at a file"
        )
    if "malformed database schema" in str(exc) or "unsupported file format" in str(exc):
        by = f"SQLite {version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
        writer = f"was written by {by}, newer than the {here} here" if version > _number() else f"says {by} wrote it"
        return GoldenError(
            f"{path} {writer}, and SQLite {here} cannot make sense of its schema ({exc}). If a newer SQLite made it, "
            "upgrade apsw, which brings SQLite along: pip install -U apsw; else the file is damaged"
        )
    return GoldenError(f"{path} cannot be read by SQLite {here}: {exc}")


def _number() -> int:
    return int(apsw.SQLITE_VERSION_NUMBER)
