"""Whatever is wrong, the message says what it is, where, and what to do; and nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.golden_files.conftest import Project
from tests.integration.children import locked

TEST = """
    @pytest.mark.snapshot_db("base")
    def test_it(snapshot_db):
        assert snapshot_db.path.exists()
"""


@pytest.fixture
def base(project: Project, database: Callable[..., Path]) -> Path:
    """A start and an artifact that are as they should be, for a test to spoil."""
    project.tests(TEST)
    (project.root / "snapshots").mkdir()
    script = "CREATE TABLE t (x); INSERT INTO t VALUES (1);"
    path = database(script, path=project.root / "snapshots" / "base.sqlite")
    project.update().assert_outcomes(passed=1)
    return path


@pytest.fixture(params=["base.sqlite", "test_it/test_it.sqlite"], ids=["start", "artifact"])
def spoiled(request: pytest.FixtureRequest, base: Path) -> Path:
    return base.parent / request.param


def fails(project: Project, *lines: str, update: bool = True) -> None:
    """Fails in the same way with and without an update, and changes nothing."""
    before = project.files()
    for result in (project.pytest(), project.update()) if update else (project.pytest(),):
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(list(lines))
        result.stdout.no_fnmatch_line("*Traceback*")
        assert project.files() == before


def test_an_artifact_that_is_not_a_database(project: Project, spoiled: Path) -> None:
    spoiled.write_text("version https://git-lfs.github.com/spec/v1\n" + "oid sha256:" + "0" * 100)
    fails(
        project, f"*{spoiled.name} is not a SQLite database: it begins with *Was it encrypted, cut short, or changed*"
    )


def test_an_artifact_that_was_cut_short(project: Project, spoiled: Path) -> None:
    spoiled.write_bytes(spoiled.read_bytes()[:5000])
    fails(project, f"*{spoiled.name} was cut short: it has 5,000 bytes, and its header says 8,192.*")


def test_an_artifact_that_is_damaged(project: Project, spoiled: Path) -> None:
    octets = spoiled.read_bytes()
    spoiled.write_bytes(octets[:4096] + b"\xff" * 4096)
    fails(project, f"*{spoiled.name} *")


def test_an_artifact_of_a_newer_sqlite_by_its_file_format(project: Project, spoiled: Path) -> None:
    octets = bytearray(spoiled.read_bytes())
    octets[18:20] = b"\x03\x03"
    spoiled.write_bytes(octets)
    fails(project, f"*{spoiled.name} has file format 3.3: it is from a newer SQLite*pip install -U apsw*")


def test_an_artifact_of_a_newer_sqlite_by_its_schema(project: Project, spoiled: Path) -> None:
    with closing(sqlite3.connect(spoiled)) as db, db:
        db.execute("PRAGMA writable_schema = on")
        db.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE t (x) FUTURISTIC'")
    octets = bytearray(spoiled.read_bytes())
    octets[96:100] = (9_001_002).to_bytes(4, "big")
    spoiled.write_bytes(octets)
    fails(project, f"*{spoiled.name} was written by SQLite 9.1.2, newer than the *pip install -U apsw*")


def test_an_artifact_that_is_locked(project: Project, spoiled: Path) -> None:
    with locked(spoiled):
        fails(project, f"*{spoiled.name} is locked: a write transaction on it was still open after 2 s. Commit it*")


def test_an_artifact_that_is_a_directory(project: Project, spoiled: Path) -> None:
    spoiled.unlink()
    spoiled.mkdir()
    fails(project, f"*{spoiled.name} is a directory, not a SQLite file: move it away*")


def test_a_start_that_is_not_there(project: Project, base: Path) -> None:
    base.unlink()
    fails(
        project,
        "there is no snapshots/base.sqlite, which the test starts from: put a SQLite file there, or have it made*",
    )


@pytest.mark.parametrize("name", ["a:b", "../base", "nul", "with space", "ä", "/etc/base"])
def test_a_name_that_is_not_portable(project: Project, name: str) -> None:
    project.tests(f"""
        @pytest.mark.snapshot_db({name!r})
        def test_it(snapshot_db): pass

        def test_db(snapshot_db):
            snapshot_db[{name!r}]
    """)
    result = project.update()
    result.assert_outcomes(failed=1, errors=1)
    assert str(result.stdout).count("is not a portable name for an artifact") >= 2


def test_a_mark_without_the_fixture(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db("base")
        def test_it(): pass
    """)
    fails(
        project, "test_it has the mark snapshot_db, and does not ask for the fixture*add snapshot_db to its arguments*"
    )


def test_a_mark_on_a_class_is_for_those_tests_that_have_the_fixture(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        class TestIt:
            def test_with(self, snapshot_db): pass
            def test_without(self): pass
    """)
    project.update().assert_outcomes(passed=2)


def test_the_fixture_by_usefixtures_is_good_enough(project: Project) -> None:
    project.tests("""
        @pytest.mark.usefixtures("snapshot_db")
        @pytest.mark.snapshot_db(build=make)
        def test_it(): pass
    """)
    project.update().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("'a', 'b'", "*takes one file, not 2*"),
        ("bild=make", "*has no bild; it has file, start, build, database, mask, foreign_keys"),
        ("'a', start='test_b'", "*both a file and start=*"),
        ("start='test_b', build=make", "*both start= and build=*"),
        ("build='make'", "*build='make' is not a function*"),
        ("start=3", "*start=3 is no test*"),
        ("start='a/b/c'", "*names no test*"),
        ("mask='created_at'", "*name a column as 'table.column'*"),
    ],
)
def test_a_mark_that_makes_no_sense(project: Project, mark: str, message: str) -> None:
    project.tests(f"""
        @pytest.mark.snapshot_db({mark})
        def test_it(snapshot_db): pass

        def test_other(snapshot_db):
            make(snapshot_db.path)
    """)
    result = project.update()
    result.assert_outcomes(errors=1, passed=1)  # the others go on
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (
            """
            @pytest.mark.parametrize("x", ["a", "A"])
            def test_it(snapshot_db, x): pass
            """,
            "*two would write one artifact, *snapshots/test_it/test_it-A.sqlite (where case does not matter*ids=*",
        ),
        (
            """
            @pytest.mark.snapshot_db("test_b", build=make)
            def test_a(snapshot_db): pass

            def test_b(snapshot_db): pass
            """,
            "*two would write one artifact, *test_b.sqlite*: test_it.py::test_b and build=test_it.make*",
        ),
        (
            """
            @pytest.mark.snapshot_db("base", build=make)
            def test_a(snapshot_db): pass

            @pytest.mark.snapshot_db("base", build=wipe)
            def test_b(snapshot_db): pass
            """,
            "*two would write one artifact, *base.sqlite*: build=test_it.make and build=test_it.wipe*",
        ),
    ],
)
def test_two_that_would_write_one_artifact(project: Project, tests: str, message: str) -> None:
    project.tests(tests)
    for result in (project.pytest(), project.update()):
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([message])
    assert project.artifacts() == []


def test_a_write_transaction_that_is_still_open_at_the_end_of_a_test(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        def test_it(snapshot_db):
            db = sqlite3.connect(snapshot_db.path)
            snapshot_db.connection = db
            db.execute("DELETE FROM messages")
    """)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*snapshot_db.sqlite is locked: a write transaction on it was still open after 2 s. Commit it*"]
    )


def test_an_idle_connection_at_the_end_of_a_test_is_fine(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        def test_it(snapshot_db):
            db = snapshot_db.connection = sqlite3.connect(snapshot_db.path)
            db.execute("PRAGMA journal_mode = wal")
            with db:
                db.execute("DELETE FROM messages")
            db.execute("SELECT * FROM snapshots")
    """)
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)


def test_a_file_that_the_test_spoiled(project: Project) -> None:
    project.tests("""
        def test_it(snapshot_db):
            snapshot_db.path.write_text("no database, " * 100)
    """)
    fails(project, "*has no artifact*", update=False)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*snapshot_db.sqlite is not a SQLite database*"])


def test_references_that_lead_nowhere_fail_the_test_unless_that_is_said(project: Project) -> None:
    test = """
        @pytest.mark.snapshot_db({})
        def test_it(snapshot_db):
            db = sqlite3.connect(snapshot_db.path)
            db.executescript("CREATE TABLE s (id PRIMARY KEY); CREATE TABLE m (s REFERENCES s (id));")
            db.execute("INSERT INTO m VALUES (1)")
            db.commit()
            db.close()
    """
    project.tests(test.format(""))
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["foreign_key_check finds*", "  m: row 1 refers by s to a row of s that is not there"])
    project.tests(test.format("foreign_keys=False"))
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)
    project.tests(test.format(""))
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["foreign_key_check finds (foreign_keys=False in the mark lets it be):"])


def test_a_folder_that_cannot_be_written(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.tests(TEST.replace('"base"', "build=make"))
    project.write("snapshots", "a file where a folder should be")
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*snapshots/test_it/make.sqlite cannot be written: *"])
