"""A diff people can read: counts first, then rows by key, what changed side by side, long values around the change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.testing.golden.compare import compare
from everturn.testing.golden.read_database import read
from everturn.testing.golden.render import render, show

Make = Callable[..., Path]

SCHEMA = """
    PRAGMA user_version = 1;
    CREATE TABLE messages (id INTEGER PRIMARY KEY, role TEXT, body TEXT);
    CREATE TABLE snapshots (id TEXT PRIMARY KEY, session TEXT, label TEXT);
    CREATE TABLE sessions (id TEXT PRIMARY KEY);
    INSERT INTO sessions VALUES ('s1');
    INSERT INTO snapshots VALUES ('snap-1', 's1', 'first'), ('snap-2', 's1', NULL);
    INSERT INTO messages VALUES (1, 'user', 'My order is 1234.'), (2, 'assistant', 'Thanks!');
"""


def diff(before: Path, after: Path, limit: int | None = None) -> list[str]:
    return list(render(compare(read(before), read(after)), limit=limit))


def test_a_diff_reads_from_counts_to_cells(database: Make) -> None:
    after = (
        SCHEMA
        + """
        DELETE FROM snapshots;
        UPDATE messages SET body = 'My order is 12.', role = 'system' WHERE id = 1;
        INSERT INTO messages VALUES (3, 'user', NULL);
        PRAGMA user_version = 2;
        CREATE INDEX i ON messages (role);
    """
    )
    assert diff(database(SCHEMA), database(after)) == [
        "  table      expected  actual  missing  added  changed",
        "  messages          2       3        -      1        1",
        "  snapshots         2       0        2      -        -",
        "  the same: sessions",
        "",
        "user_version: 1 expected, 2 found",
        "",
        "index i was not expected",
        "  + CREATE INDEX i ON messages (role)",
        "",
        "messages, by id",
        "  + id=3, role='user', body=NULL",
        "          expected             actual",
        "  ~ id=1",
        "    role  'user'               'system'",
        "    body  'My order is 1234.'  'My order is 12.'",
        "",
        "snapshots, by id",
        "  - id='snap-1', session='s1', label='first'",
        "  - id='snap-2', session='s1', label=NULL",
    ]


def test_nothing_is_said_of_equal_files(database: Make) -> None:
    assert compare(read(database(SCHEMA)), read(database(SCHEMA))).is_none


def test_long_values_are_shortened_around_the_change(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    before = database(table + f"INSERT INTO t VALUES (1, '{'a' * 5000}old{'z' * 5000}');")
    after = database(table + f"INSERT INTO t VALUES (1, '{'a' * 5000}new{'z' * 5000}');")
    line = diff(before, after)[-1]
    assert len(line) < 120
    left, right = line.split()[1:]
    assert left == "…" + "a" * 16 + "old" + "z" * 29 + "…"
    assert right == "…" + "a" * 16 + "new" + "z" * 29 + "…"


def test_long_blobs_are_shortened_around_the_change(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    before = database(table + f"INSERT INTO t VALUES (1, x'{'00' * 900}11{'00' * 900}');")
    after = database(table + f"INSERT INTO t VALUES (1, x'{'00' * 900}22{'00' * 900}');")
    line = diff(before, after)[-1]
    assert len(line) < 120
    assert "0011" in line
    assert "0022" in line


def test_the_end_of_a_longer_value_is_shown(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    before, after = (database(table + f"INSERT INTO t VALUES (1, '{'a' * 500}{end}');") for end in ("", "!"))
    line = diff(before, after)[-1]
    assert "aaa!'" in line


def test_long_values_of_whole_rows_are_cut(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    line = diff(database(table), database(table + f"INSERT INTO t VALUES (1, '{'a' * 500}');"))[-1]
    assert line == "  + k=1, v='" + "a" * 47 + "…"


def test_what_looks_the_same_is_spelled_out(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    before, after = (database(table + f"INSERT INTO t VALUES (1, {v});") for v in ("char(233)", "'e' || char(769)"))
    assert diff(before, after)[-1].split() == ["v", r"'\xe9'", r"'e\u0301'"]


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        ("1", "1.0", ["1", "1.0"]),
        ("1", "'1'", ["1", "'1'"]),
        ("0.0", "-0.0", ["0.0", "-0.0"]),
        ("'a'", "x'61'", ["'a'", "x'61'"]),
        ("NULL", "''", ["NULL", "''"]),
        ("9e999", "-9e999", ["inf", "-inf"]),
        ("'a' || char(0)", "'a'", [r"'a\x00'", "'a'"]),
        ("CAST(x'ff41' AS TEXT)", "NULL", ["text", "x'ff41'", "(no", "valid", "text)", "NULL"]),
        ("char(27) || '[2J'", "NULL", [r"'\x1b[2J'", "NULL"]),
    ],
)
def test_a_value_shows_its_type_and_does_no_harm(database: Make, left: str, right: str, shown: list[str]) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY, v);"
    before, after = (database(table + f"INSERT INTO t VALUES (1, {value});") for value in (left, right))
    assert diff(before, after)[-1].split()[1:] == shown


def test_many_rows_are_counted_and_a_few_are_shown(database: Make) -> None:
    table = "CREATE TABLE t (k INTEGER PRIMARY KEY);"
    many = "WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT i + 1 FROM n LIMIT 1234) INSERT INTO t SELECT i FROM n;"
    lines = diff(database(table + many), database(table), limit=3)
    assert lines[-5:] == ["t, by k", "  - k=1", "  - k=2", "  - k=3", "  ... and 1,231 more missing"]
    assert lines[1].split() == ["t", "1,234", "0", "1,234", "-", "-"]


def test_rows_are_in_the_order_of_their_keys_as_sqlite_has_it(database: Make) -> None:
    table = "CREATE TABLE t (k PRIMARY KEY) WITHOUT ROWID;"
    rows = "INSERT INTO t VALUES (10), (9), ('b'), ('a'), (x'00'), (1.5);"
    lines = diff(database(table + rows), database(table))
    assert [line.removeprefix("  - k=") for line in lines[3:]] == ["t, by k", "1.5", "9", "10", "'a'", "'b'", "x'00'"]


def test_keys_of_several_columns_are_in_their_own_order(database: Make) -> None:
    table = "CREATE TABLE t (a, b, c, PRIMARY KEY (b, a));"
    before = database(table + "INSERT INTO t VALUES (1, 'x', 5), (2, 'x', 6);")
    after = database(table + "INSERT INTO t VALUES (1, 'x', 5), (2, 'x', 7);")
    assert "t, by b, a" in diff(before, after)
    assert "  ~ b='x', a=2" in diff(before, after)


def test_rows_without_a_key_are_paired_by_likeness(database: Make) -> None:
    table = "CREATE TABLE t (a, b, c);"
    before = database(table + "INSERT INTO t VALUES (1, 'x', 'old'), (2, 'y', 'z');")
    after = database(table + "INSERT INTO t VALUES (1, 'x', 'new'), (2, 'y', 'z');")
    assert diff(before, after)[-3:] == ["       expected  actual", "  ~ a=1, b='x'", "    c  'old'     'new'"]
    unlike = database(table + "INSERT INTO t VALUES (7, 'x', 'new'), (2, 'y', 'z');")
    assert diff(before, unlike)[-2:] == ["  - a=1, b='x', c='old'", "  + a=7, b='x', c='new'"]


def test_a_column_more_is_said_once_and_not_in_every_row(database: Make) -> None:
    before = database("CREATE TABLE t (k INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2), (3, 4);")
    after = database(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2), (3, 5); ALTER TABLE t ADD b DEFAULT 0;"
    )
    assert diff(before, after) == [
        "  table  expected  actual  missing  added  changed",
        "  t             2       2        -      -        1",
        "",
        "table t is another",
        "  - CREATE TABLE t (k INTEGER PRIMARY KEY, a)",
        "  + CREATE TABLE t (k INTEGER PRIMARY KEY, a, b DEFAULT 0)",
        "",
        "t, by k",
        "  added column: b",
        "       expected  actual",
        "  ~ k=3",
        "    a  4         5",
    ]


def test_a_schema_of_many_lines_shows_those_that_changed(database: Make) -> None:
    before = database("CREATE TABLE t (\n  a TEXT,\n  b TEXT,\n  c TEXT,\n  d TEXT\n)")
    after = database("CREATE TABLE t (\n  a TEXT,\n  b INT,\n  c TEXT,\n  d TEXT\n)")
    assert diff(before, after)[2:6] == ["table t is another", "      a TEXT,", "  -   b TEXT,", "  +   b INT,"]


# --- show ------------------------------------------------------------------------------------------------------------


def test_show_tells_everything_a_row_a_line(database: Make) -> None:
    assert list(show(read(database(SCHEMA)))) == [
        "user_version = 1",
        "application_id = 0",
        "encoding = UTF-8",
        "",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, role TEXT, body TEXT);",
        "",
        "CREATE TABLE sessions (id TEXT PRIMARY KEY);",
        "",
        "CREATE TABLE snapshots (id TEXT PRIMARY KEY, session TEXT, label TEXT);",
        "",
        "messages (2 rows)",
        "  id=1, role='user', body='My order is 1234.'",
        "  id=2, role='assistant', body='Thanks!'",
        "",
        "sessions (1 row)",
        "  id='s1'",
        "",
        "snapshots (2 rows)",
        "  id='snap-1', session='s1', label='first'",
        "  id='snap-2', session='s1', label=NULL",
    ]


def test_show_shows_long_values_whole(database: Make) -> None:
    text = "x" * 10_000
    lines = list(show(read(database(f"CREATE TABLE t (v); INSERT INTO t VALUES ('{text}');"))))
    assert lines[-1] == f"  v='{text}'"


def test_show_is_the_same_for_files_that_hold_the_same(database: Make) -> None:
    one = database("CREATE TABLE a (x); CREATE TABLE b (x); INSERT INTO a VALUES (2), (1);")
    other = database("PRAGMA page_size = 512; CREATE TABLE b (x); CREATE TABLE a (x); INSERT INTO a VALUES (1), (2);")
    assert list(show(read(one))) == list(show(read(other)))
