"""Files that others have open, or died with: all that is committed is read, in one piece, and nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everturn.testing.golden import file_copy
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.inspector import InspectorProcess
from everturn.testing.golden.read_database import read
from tests.integration.children import children, eventually, locked, run

Make = Callable[..., Path]
MODES = ["wal", "delete"]
SCRIPT = "CREATE TABLE t (k INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'one');"


@pytest.fixture
def inspector() -> Iterator[InspectorProcess]:
    inspector = InspectorProcess()
    yield inspector
    inspector.close()


def beside(path: Path) -> dict[str, tuple[bytes, int]]:
    """Take the state of its folder: names, contents, times of the last change."""
    return {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.parent.iterdir() if each.is_file()}


def rows(path: Path) -> list[object]:
    return sorted(read(path).tables["t"].rows)


def killed_with(path: Path, *statements: str) -> None:
    """Have another process do this to the file, and die of kill -9 without closing it."""
    code = f"""
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in {statements!r}:
    db.execute(statement)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with children((code, path)) as (child,):
        child.wait(60)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_committed_and_still_open_is_read(database: Make, inspector: InspectorProcess, mode: str) -> None:
    path, expected = database(f"PRAGMA journal_mode = {mode};" + SCRIPT), database(SCRIPT)
    with closing(sqlite3.connect(path)) as db:
        with db:
            db.execute("INSERT INTO t VALUES (2, 'two')")
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM t").fetchall()  # an idle reader is no obstacle
            before = beside(path)
            if mode == "wal":
                assert before[f"{path.name}-wal"][0]  # the row is not in the main file
            assert "+ k=2, v='two'" in inspector.judge(expected, path, (), foreign_keys=True)
            assert beside(path) == before
        with db:
            db.execute("INSERT INTO t VALUES (3, 'three')")  # and it goes on working


def test_what_a_killed_process_committed_to_the_wal_is_read_and_stays_there(database: Make) -> None:
    path = database("PRAGMA journal_mode = wal;" + SCRIPT)
    killed_with(path, "INSERT INTO t VALUES (2, 'two')", "BEGIN IMMEDIATE", "INSERT INTO t VALUES (3, 'never')")
    before = beside(path)
    assert {f"{path.name}-wal", f"{path.name}-shm"} <= before.keys()
    assert rows(path) == [(1, "one"), (2, "two")]
    assert beside(path) == before
    path.with_name(f"{path.name}-shm").unlink()
    before = beside(path)
    assert rows(path) == [(1, "one"), (2, "two")]
    assert beside(path) == before


def test_what_a_killed_process_had_begun_is_rolled_back_in_the_copy_alone(database: Make) -> None:
    """Its changes are in the file already, and the way back in the journal."""
    path = database(SCRIPT + "CREATE TABLE large AS SELECT zeroblob(200000) AS z;")
    killed_with(
        path,
        "PRAGMA cache_size = 5",
        "PRAGMA cache_spill = 1",
        "BEGIN IMMEDIATE",
        "UPDATE t SET v = 'half'",
        "INSERT INTO large SELECT randomblob(200000) FROM (VALUES (1), (2), (3), (4), (5))",
        "UPDATE large SET z = randomblob(200000)",
    )
    before = beside(path)
    assert before[f"{path.name}-journal"][0]
    assert rows(path) == [(1, "one")]
    assert beside(path) == before


@pytest.mark.parametrize("mode", MODES)
def test_a_write_transaction_that_stays_open_is_a_clear_failure(
    database: Make, inspector: InspectorProcess, mode: str, tmp_path: Path
) -> None:
    path = database(f"PRAGMA journal_mode = {mode};" + SCRIPT)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (2, 'two')")
        with pytest.raises(
            GoldenError, match=r"is locked: a write transaction on it was still open after 2 s\. Commit it"
        ):
            inspector.judge(path, path, (), foreign_keys=True)
        # Our look at it has not dropped the lock, as it would have from within this process.
        assert run(_TRY, path) == "database is locked\n"
        db.execute("COMMIT")
    assert rows(path) == [(1, "one"), (2, "two")]


_TRY = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
    print("free")
except sqlite3.OperationalError as error:
    print(error)
"""


_READ = """
import sys
from pathlib import Path
from everturn.testing.golden.read_database import read
print("go", flush=True)
read(Path(sys.argv[1]))
print("done")
"""


def test_a_write_transaction_that_ends_in_time_is_waited_for(database: Make) -> None:
    path = database("PRAGMA journal_mode = wal;" + SCRIPT)
    with locked(path) as lock, children((_READ, path)) as (child,):
        assert child.line() == "go"
        lock.release()
        assert child.finished() == "done\n"


def test_a_file_that_cannot_be_written_is_read_all_the_same(database: Make) -> None:
    path = database(SCRIPT)
    path.chmod(0o400)
    assert rows(path) == [(1, "one")]


_PAY = """
import apsw, sqlite3, sys
path, library = sys.argv[1:]
db = apsw.Connection(path) if library == "apsw" else sqlite3.connect(path, isolation_level=None, timeout=60)
if library == "apsw":
    db.set_busy_timeout(60_000)
db.execute("PRAGMA wal_autocheckpoint = 3")
db.execute("PRAGMA synchronous = off")
print("go", flush=True)
for turn in range(1_000_000):
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE t SET v = v - 1 WHERE k = ?", (turn % 50,))
    db.execute("UPDATE t SET v = v + 1 WHERE k = ?", ((turn * 7) % 50,))
    db.execute("COMMIT")
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_is_of_one_moment_while_others_write_and_checkpoint(
    database: Make, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, one with each library, move money about; there is always the same amount of it."""
    monkeypatch.setattr(file_copy, "PATIENCE", 30.0)  # they leave hardly a moment between two transactions
    path = database(
        f"PRAGMA journal_mode = {mode}; CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER, filler BLOB);"
        "WITH RECURSIVE n (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 49) "
        "INSERT INTO t SELECT i, 100, randomblob(100000) FROM n;"
    )
    states = set()
    with children((_PAY, path, "apsw"), (_PAY, path, "sqlite3")) as payers:
        for payer in payers:
            assert payer.line() == "go"

        def changed() -> bool:
            image = read(path)
            assert image.problems == ()
            amounts = tuple(row[1] for row in sorted(image.tables["t"].rows))
            assert sum(amounts) == 5000
            states.add(amounts)
            return len(states) >= 20

        eventually(changed, "the payers pay")
        assert all(payer.poll() is None for payer in payers), "they saw no error"


def test_the_two_libraries_are_not_in_one_process(database: Make) -> None:
    """pytest's process loads apsw neither for the plugin nor for a comparison."""
    code = f"""
import sys
from pathlib import Path
import everturn.testing.plugin
from everturn.testing.golden.inspector import InspectorProcess
inspector = InspectorProcess()
path = Path({str(database(SCRIPT))!r})
assert inspector.judge(path, path, (), foreign_keys=True) == ""
inspector.close()
print("apsw" in sys.modules, "sqlite3" in sys.modules)
"""
    assert run(code) == "False False\n"
