"""The comparison is logical and complete: whatever differs is found, whatever is only storage is not."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from everturn.testing.golden.compare import compare
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.read_database import read

Make = Callable[..., Path]

TABLE = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
NO_KEY = "CREATE TABLE t (v);"
COUNTED = "CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT);"
FTS = "CREATE VIRTUAL TABLE f USING fts5(body);"
BARE = "CREATE VIRTUAL TABLE f USING fts5(body, content='');"
ABOUT = (
    "CREATE TABLE t (k INTEGER PRIMARY KEY, v); CREATE VIRTUAL TABLE f USING fts5(v, content='t', content_rowid='k');"
)

DIFFERENT = {
    "a table": ("", TABLE),
    "a column": (TABLE, "CREATE TABLE t (k INTEGER PRIMARY KEY, v, w);"),
    "the type of a column": (TABLE, "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT);"),
    "a default": (TABLE, "CREATE TABLE t (k INTEGER PRIMARY KEY, v DEFAULT 1);"),
    "an index": (TABLE, TABLE + "CREATE INDEX i ON t (v);"),
    "a unique index": (TABLE + "CREATE INDEX i ON t (v);", TABLE + "CREATE UNIQUE INDEX i ON t (v);"),
    "a trigger": (TABLE, TABLE + "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;"),
    "a view": (TABLE + "CREATE VIEW w AS SELECT k FROM t;", TABLE + "CREATE VIEW w AS SELECT v FROM t;"),
    "user_version": ("", "PRAGMA user_version = 7;"),
    "application_id": ("", "PRAGMA application_id = 7;"),
    "encoding": ("PRAGMA encoding = 'UTF-8';" + TABLE, "PRAGMA encoding = 'UTF-16le';" + TABLE),
    "a row": (TABLE, TABLE + "INSERT INTO t VALUES (1, 2);"),
    "a value": (TABLE + "INSERT INTO t VALUES (1, 'a');", TABLE + "INSERT INTO t VALUES (1, 'b');"),
    "a key": (TABLE + "INSERT INTO t VALUES (1, 'a');", TABLE + "INSERT INTO t VALUES (2, 'a');"),
    "integer and real": (NO_KEY + "INSERT INTO t VALUES (1);", NO_KEY + "INSERT INTO t VALUES (1.0);"),
    "integer and text": (NO_KEY + "INSERT INTO t VALUES (1);", NO_KEY + "INSERT INTO t VALUES ('1');"),
    "text and blob": (NO_KEY + "INSERT INTO t VALUES ('a');", NO_KEY + "INSERT INTO t VALUES (x'61');"),
    "NULL and empty": (NO_KEY + "INSERT INTO t VALUES (NULL);", NO_KEY + "INSERT INTO t VALUES ('');"),
    "NULL and zero": (NO_KEY + "INSERT INTO t VALUES (NULL);", NO_KEY + "INSERT INTO t VALUES (0);"),
    "-0.0 and 0.0": (NO_KEY + "INSERT INTO t VALUES (-0.0);", NO_KEY + "INSERT INTO t VALUES (0.0);"),
    "infinities": (NO_KEY + "INSERT INTO t VALUES (9e999);", NO_KEY + "INSERT INTO t VALUES (-9e999);"),
    "what comes after a NUL": (
        NO_KEY + "INSERT INTO t VALUES ('a' || char(0) || 'b');",
        NO_KEY + "INSERT INTO t VALUES ('a' || char(0) || 'c');",
    ),
    "a NUL at the end": (NO_KEY + "INSERT INTO t VALUES ('a');", NO_KEY + "INSERT INTO t VALUES ('a' || char(0));"),
    "text that is not valid": (
        NO_KEY + "INSERT INTO t VALUES (CAST(x'ff' AS TEXT));",
        NO_KEY + "INSERT INTO t VALUES (CAST(x'fe' AS TEXT));",
    ),
    "text that is not valid, and a blob": (
        NO_KEY + "INSERT INTO t VALUES (CAST(x'ff' AS TEXT));",
        NO_KEY + "INSERT INTO t VALUES (x'ff');",
    ),
    "a lone surrogate in UTF-16": (
        "PRAGMA encoding = 'UTF-16le';" + NO_KEY + "INSERT INTO t VALUES (CAST(x'00d8' AS TEXT));",
        "PRAGMA encoding = 'UTF-16le';" + NO_KEY + "INSERT INTO t VALUES (CAST(x'01d8' AS TEXT));",
    ),
    "two ways to write an é": (
        NO_KEY + "INSERT INTO t VALUES (char(233));",
        NO_KEY + "INSERT INTO t VALUES ('e' || char(769));",
    ),
    "the last of 64 bits": (
        NO_KEY + "INSERT INTO t VALUES (9223372036854775807);",
        NO_KEY + "INSERT INTO t VALUES (9223372036854775806);",
    ),
    "how often a row is there": (NO_KEY + "INSERT INTO t VALUES (1), (1);", NO_KEY + "INSERT INTO t VALUES (1);"),
    "a row without rowid": (
        "CREATE TABLE t (k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO t VALUES ('a', 1);",
        "CREATE TABLE t (k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO t VALUES ('a', 2);",
    ),
    "where AUTOINCREMENT goes on": (
        COUNTED + "INSERT INTO t VALUES (1);",
        COUNTED + "INSERT INTO t VALUES (1), (2); DELETE FROM t WHERE k = 2;",
    ),
    "a generated column": (
        "CREATE TABLE t (v, g AS (v * 2)); INSERT INTO t VALUES (1);",
        "CREATE TABLE t (v, g AS (v * 3)); INSERT INTO t VALUES (1);",
    ),
    "statistics": (TABLE + "INSERT INTO t VALUES (1, 1);", TABLE + "INSERT INTO t VALUES (1, 1); ANALYZE;"),
    "full text": (FTS + "INSERT INTO f VALUES ('one');", FTS + "INSERT INTO f VALUES ('two');"),
    "the number of a document": (
        FTS + "INSERT INTO f (rowid, body) VALUES (1, 'one');",
        FTS + "INSERT INTO f (rowid, body) VALUES (2, 'one');",
    ),
    "full text without content": (
        BARE + "INSERT INTO f (rowid, body) VALUES (1, 'one');",
        BARE + "INSERT INTO f (rowid, body) VALUES (1, 'two');",
    ),
    "an index that another's content is not in": (
        ABOUT + "INSERT INTO t VALUES (1, 'one'); INSERT INTO f (rowid, v) VALUES (1, 'one');",
        ABOUT + "INSERT INTO t VALUES (1, 'one');",
    ),
    "full text of fts4": (
        "CREATE VIRTUAL TABLE f USING fts4(body); INSERT INTO f VALUES ('one');",
        "CREATE VIRTUAL TABLE f USING fts4(body); INSERT INTO f VALUES ('two');",
    ),
    "an R-tree": (
        "CREATE VIRTUAL TABLE r USING rtree(id, x, y); INSERT INTO r VALUES (1, 2, 3);",
        "CREATE VIRTUAL TABLE r USING rtree(id, x, y); INSERT INTO r VALUES (1, 2, 4);",
    ),
    "a name with a quote in it": (
        'CREATE TABLE "a ""b" ("c \'d" TEXT); INSERT INTO "a ""b" VALUES (1);',
        'CREATE TABLE "a ""b" ("c \'d" TEXT); INSERT INTO "a ""b" VALUES (2);',
    ),
}


@pytest.mark.parametrize("case", list(DIFFERENT))
def test_it_is_found_that_they_differ_in(database: Make, case: str) -> None:
    left, right = (read(database(script)) for script in DIFFERENT[case])
    assert not compare(left, right).is_none
    assert not compare(right, left).is_none
    assert compare(left, left).is_none
    assert compare(right, right).is_none


MANY = "".join(f"INSERT INTO f VALUES ('word{n} and more');" for n in range(300))
SAME = {
    "the order of rows": (
        TABLE + "INSERT INTO t VALUES (1, 2), (3, 4);",
        TABLE + "INSERT INTO t VALUES (3, 4), (1, 2);",
    ),
    "the order of rows without a key": (
        NO_KEY + "INSERT INTO t VALUES (1), (2);",
        NO_KEY + "INSERT INTO t VALUES (2), (1);",
    ),
    "the order of tables": ("CREATE TABLE a (x); CREATE TABLE b (x);", "CREATE TABLE b (x); CREATE TABLE a (x);"),
    "page size": (TABLE, "PRAGMA page_size = 512;" + TABLE),
    "auto_vacuum": (TABLE, "PRAGMA auto_vacuum = full;" + TABLE),
    "free pages": (TABLE, TABLE + "CREATE TABLE x AS SELECT zeroblob(100000) AS z; DROP TABLE x;"),
    "journal mode": (TABLE, "PRAGMA journal_mode = wal;" + TABLE),
    "numbers of rows without a key": (
        NO_KEY + "INSERT INTO t (rowid, v) VALUES (1, 'a');",
        NO_KEY + "INSERT INTO t (rowid, v) VALUES (9, 'a');",
    ),
    "how full text is stored": (FTS + MANY, FTS + MANY + "INSERT INTO f (f) VALUES ('optimize');"),
    "the statistics of that": (FTS + MANY + "ANALYZE;", FTS + MANY + "INSERT INTO f (f) VALUES ('optimize'); ANALYZE;"),
    "how bare full text is stored": (
        BARE + "INSERT INTO f (rowid, body) VALUES (1, 'one two'), (2, 'three');",
        BARE + "INSERT INTO f (rowid, body) VALUES (2, 'three'); INSERT INTO f (rowid, body) VALUES (1, 'one two');",
    ),
    "NaN, which SQLite has as NULL": (
        NO_KEY + "INSERT INTO t VALUES (9e999 - 9e999);",
        NO_KEY + "INSERT INTO t VALUES (NULL);",
    ),
}


@pytest.mark.parametrize("case", list(SAME))
def test_it_makes_no_difference(database: Make, case: str) -> None:
    left, right = (read(database(script)) for script in SAME[case])
    assert compare(left, right).is_none


def test_a_nan_that_is_in_the_file_is_null(database: Make) -> None:
    """As SQLite shows it. A NaN gets there past SQLite only."""
    path = database(NO_KEY + "INSERT INTO t VALUES (1.5);")
    content = path.read_bytes()
    assert content.count(struct.pack(">d", 1.5)) == 1
    path.write_bytes(content.replace(struct.pack(">d", 1.5), struct.pack(">d", float("nan"))))
    assert read(path).tables["t"].rows == [(None,)]


def test_an_empty_file_is_an_empty_database(database: Make, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert compare(read(tmp_path / "empty"), read(database())).is_none


def test_a_virtual_table_of_an_unknown_module_is_compared_by_the_tables_it_is_stored_in(database: Make) -> None:
    """Such as sqlite-vec's: its module is in the user's program, and not in ours."""

    def with_module(value: int) -> Path:
        path = database(f"CREATE TABLE v_data (x); INSERT INTO v_data VALUES ({value});")
        db = sqlite3.connect(path)
        db.execute("PRAGMA writable_schema = on")
        db.execute("INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING vec9(x)')")
        db.commit()
        db.close()
        return path

    one, other = read(with_module(1)), read(with_module(2))
    assert "table v" in one.schema
    assert compare(one, read(with_module(1))).is_none
    assert [table.name for table in compare(one, other).tables] == ["v_data"]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a COLLATE mine PRIMARY KEY)",
        "CREATE TABLE t (a, b AS (twice(a)))",
        "CREATE INDEX i ON s (twice(x))",
    ],
)
def test_a_file_that_needs_the_users_own_functions_is_refused_by_name(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "own.sqlite"
    db = apsw.Connection(str(path))
    db.create_collation("mine", lambda a, b: (a > b) - (a < b))
    db.create_scalar_function("twice", lambda x: 2 * x, 1, deterministic=True)
    db.execute("CREATE TABLE s (x); INSERT INTO s VALUES (1);" + sql)
    if "TABLE t" in sql:
        db.execute("INSERT INTO t (a) VALUES (1)")
    db.close()
    with pytest.raises(GoldenError, match=r"needs a (function|collation sequence) that only your program has"):
        compare(read(path), read(path))


# --- what is wrong with a file ---------------------------------------------------------------------------------------


def test_dangling_references_are_found(database: Make) -> None:
    image = read(
        database(
            "CREATE TABLE s (id TEXT PRIMARY KEY); CREATE TABLE m (id INTEGER PRIMARY KEY, sid TEXT REFERENCES s (id));"
            "INSERT INTO s VALUES ('a'); INSERT INTO m VALUES (1, 'a'), (2, 'gone');"
        )
    )
    assert image.dangling == ("m: row 2 refers by sid to a row of s that is not there",)
    assert image.problems == ()


def test_a_reference_to_what_can_be_no_parent_is_told(database: Make) -> None:
    script = "CREATE TABLE s (id TEXT); CREATE TABLE m (sid TEXT REFERENCES s (id)); INSERT INTO m VALUES ('a');"
    assert "foreign key mismatch" in read(database(script)).dangling[0]


def test_integrity_check_is_asked(database: Make) -> None:
    path = database("CREATE TABLE t (v); CREATE INDEX i ON t (v); INSERT INTO t VALUES (1), (2);")
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = on")
    db.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON t (v DESC)' WHERE name = 'i'")
    db.commit()
    db.close()
    assert any("index i" in problem for problem in read(path).problems)
