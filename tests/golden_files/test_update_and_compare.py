"""The life of an artifact: missing, written, compared, different, and never written when it should not be."""

from __future__ import annotations

import pytest

from tests.golden_files.conftest import Project

SAYS = """
    @pytest.mark.snapshot_db(build=make)
    def test_says(snapshot_db):
        snapshot_db.run(say, snapshot_db.path, "hi")
"""


def test_a_missing_artifact_is_a_failure_and_nothing_is_written(project: Project) -> None:
    project.tests("""
        def test_new(snapshot_db):
            make(snapshot_db.path)
    """)
    before = project.files()
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*has no artifact snapshots/test_it/test_new.sqlite yet: run pytest with --snapshot-update*"]
    )
    assert project.files() == before
    assert not (project.root / "snapshots").exists()


def test_an_update_writes_what_is_missing_and_the_test_passes_at_once(project: Project) -> None:
    project.tests(SAYS)
    result = project.update()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["written: snapshots/test_it/make.sqlite", "written: snapshots/test_it/test_says.sqlite"]
    )
    assert project.artifacts() == ["snapshots/test_it/make.sqlite", "snapshots/test_it/test_says.sqlite"]
    before = project.files()
    project.pytest().assert_outcomes(passed=1)
    assert project.files() == before


def test_a_difference_is_a_failure_of_the_test_itself_and_changes_nothing(project: Project) -> None:
    project.tests(SAYS)
    project.update()
    project.tests(SAYS + "        snapshot_db.run(wipe, snapshot_db.path)\n")
    before = project.files()
    result = project.pytest()
    result.assert_outcomes(failed=1)  # and no error in the teardown
    result.stdout.fnmatch_lines(
        [
            "*_ test_says _*",
            "snapshot_db is not what snapshots/test_it/test_says.sqlite says:",
            "*snapshots         1       0        1      -        -",
            "  the same: messages",
            "snapshots, by id",
            "  - id='snap-1', label='first'",
            "all of it: everturn golden diff snapshots/test_it/test_says.sqlite /*.sqlite",
            "if it is right as it is now: run pytest with --snapshot-update to write it, look at it, and commit it",
        ]
    )
    result.stdout.no_fnmatch_line("*During handling*")
    assert project.files() == before


def test_an_update_writes_what_differs(project: Project) -> None:
    project.tests(SAYS)
    project.update()
    project.tests(SAYS + "        snapshot_db.run(wipe, snapshot_db.path)\n")
    result = project.update()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("written: *make.sqlite")
    result.stdout.fnmatch_lines(["written: snapshots/test_it/test_says.sqlite"])
    project.pytest().assert_outcomes(passed=1)


def test_an_update_leaves_an_equal_artifact_byte_for_byte_as_it_is(project: Project) -> None:
    """Other bytes that say the same: another page size, and rows that came in another order."""
    project.tests(SAYS)
    project.update()
    artifact = project.root / "snapshots/test_it/test_says.sqlite"
    artifact.unlink()
    project.write(
        "elsewhere.py",
        """
        import sqlite3
        db = sqlite3.connect("snapshots/test_it/test_says.sqlite")
        db.executescript(
            "PRAGMA page_size = 512;"
            "CREATE TABLE snapshots (id TEXT PRIMARY KEY, label TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT);"
            "INSERT INTO snapshots VALUES ('snap-1', 'first');"
            "INSERT INTO messages VALUES (3, 'hi'), (2, 'world'), (1, 'hello');"
        )
        db.close()
    """,
    )
    exec(compile((project.root / "elsewhere.py").read_text(), "elsewhere", "exec"))
    before = project.files()
    result = project.update()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("written: *")
    assert project.files() == before


@pytest.mark.parametrize(
    "end", ["assert False", "raise ValueError", "pytest.skip('no')", "pytest.xfail('no')", "snapshot_db.run(fails)"]
)
def test_a_test_whose_body_did_not_pass_neither_compares_nor_writes(project: Project, end: str) -> None:
    project.tests(f"""
        def fails(): raise ValueError("no")

        def test_ends(snapshot_db):
            make(snapshot_db.path)
            snapshot_db.check("a stage")
            {end}
    """)
    result = project.update()
    assert result.parseoutcomes().get("passed", 0) == 0
    result.stdout.no_fnmatch_line("*snapshot_db is not*")
    assert project.artifacts() == []


def test_a_unittest_test_that_fails_neither_compares_nor_writes(project: Project) -> None:
    project.tests("""
        import unittest

        class TestOld(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _db(self, snapshot_db):
                self.db = snapshot_db

            def test_good(self):
                make(self.db.path)

            def test_bad(self):
                make(self.db.path)
                self.fail("no")
    """)
    result = project.update()
    result.assert_outcomes(passed=1, failed=1)
    assert project.artifacts() == ["snapshots/test_it/TestOld.test_good.sqlite"]
    project.pytest("-k", "good").assert_outcomes(passed=1)


def test_an_async_test_is_compared_when_it_is_done(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        import asyncio, inspect, pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                asyncio.run(pyfuncitem.obj(snapshot_db=pyfuncitem.funcargs["snapshot_db"]))
                return True
    """,
    )
    project.tests("""
        async def aio_say(path, body):
            say(path, body)
            return body.upper()

        @pytest.mark.snapshot_db(build=make)
        async def test_async(snapshot_db):
            assert snapshot_db.run(aio_say, snapshot_db.path, "hi") == "HI"
    """)
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)


# --- stages and several databases ------------------------------------------------------------------------------------


def test_a_stage_has_an_artifact_of_its_own_and_fails_where_it_is_checked(project: Project) -> None:
    test = """
        @pytest.mark.snapshot_db(build=make)
        def test_stages(snapshot_db):
            snapshot_db.run(say, snapshot_db.path, "one")
            snapshot_db.check("after the first rollback")
            snapshot_db.run(say, snapshot_db.path, "two")
    """
    project.tests(test)
    project.update().assert_outcomes(passed=1)
    assert project.artifacts() == [
        "snapshots/test_it/make.sqlite",
        "snapshots/test_it/test_stages.sqlite",
        "snapshots/test_it/test_stages@after-the-first-rollback.sqlite",
    ]
    project.pytest().assert_outcomes(passed=1)
    project.tests(test.replace("one", "another"))
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*snapshot_db.check(*after the first rollback*)",
            "E *SnapshotMismatch: snapshot_db, 'after the first rollback', is not what snapshots/test_it/*",
            "E *body*'one'*'another'*",
        ]
    )
    result.stdout.no_fnmatch_line("*case.py*")  # the way through our own code is no help


def test_two_stages_of_one_name_are_refused(project: Project) -> None:
    project.tests("""
        def test_twice(snapshot_db):
            make(snapshot_db.path)
            snapshot_db.check("a stage")
            snapshot_db.check("a-stage")
    """)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*two checks would write one artifact, test_twice@a-stage.sqlite: 'a stage' and 'a-stage'*"]
    )
    assert project.artifacts() == []


def test_the_same_stage_twice_is_refused(project: Project) -> None:
    project.tests("""
        def test_twice(snapshot_db):
            make(snapshot_db.path)
            for turn in range(2):
                snapshot_db.check(f"stage")
    """)
    project.update().assert_outcomes(failed=1)


def test_a_stage_needs_a_name(project: Project) -> None:
    project.tests("""
        def test_nameless(snapshot_db):
            make(snapshot_db.path)
            snapshot_db.check(" ")
    """)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*GoldenError: a stage needs a name*"])


def test_several_databases_by_name_each_with_its_start_and_artifact(project: Project) -> None:
    test = """
        def make_orders(path):
            db = sqlite3.connect(path)
            db.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            db.close()

        @pytest.mark.snapshot_db(build=make, database="users")
        @pytest.mark.snapshot_db(build=make_orders, database="orders")
        def test_two(snapshot_db):
            snapshot_db.run(say, snapshot_db["users"].path, "hi")
            db = sqlite3.connect(snapshot_db["orders"].path)
            with db:
                db.execute("INSERT INTO orders VALUES (7)")
            db.close()
            snapshot_db["orders"].check("ordered")
    """
    project.tests(test)
    project.update().assert_outcomes(passed=1)
    assert project.artifacts() == [
        "snapshots/test_it/make.sqlite",
        "snapshots/test_it/make_orders.sqlite",
        "snapshots/test_it/test_two+orders.sqlite",
        "snapshots/test_it/test_two+orders@ordered.sqlite",
        "snapshots/test_it/test_two+users.sqlite",
    ]
    project.pytest().assert_outcomes(passed=1)
    project.tests(test.replace('"hi"', '"ho"'))
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["snapshot_db['users'] is not what snapshots/test_it/test_two+users.sqlite says:"])


def test_a_test_that_makes_no_file_is_told_so(project: Project) -> None:
    project.tests("""
        def test_idle(snapshot_db):
            pass

        def test_forgot(snapshot_db):
            assert snapshot_db.path
    """)
    result = project.update()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*did nothing with it, so there is nothing to compare*",
            "there is no file to compare: nobody made snapshot_db.path*",
        ]
    )


# --- who may write ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ci", ["true", "1"])
def test_in_ci_an_update_needs_a_flag_more(project: Project, monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    project.tests(SAYS)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--snapshot-db-ci is given too. Run it on your machine, look at it, and commit it*"])
    assert project.artifacts() == []
    project.update("--snapshot-db-ci").assert_outcomes(passed=1)
    project.update().assert_outcomes(passed=1)  # nothing to write, so nothing is amiss


def test_ci_that_is_set_to_false_is_no_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    project.tests(SAYS)
    project.update().assert_outcomes(passed=1)


def test_files_of_the_user_are_never_touched(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db("memory_test")
        def test_says(snapshot_db):
            snapshot_db.run(say, snapshot_db.path, "hi")
    """)
    project.write("make_it.py", MAKE)
    exec(compile((project.root / "make_it.py").read_text(), "make_it", "exec"))
    project.write("snapshots/notes.txt", "mine")
    project.write("snapshots/test_it/test_says/syrupy-like.txt", "mine, too")
    mine = project.files()
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)
    after = project.files()
    assert after.keys() - mine.keys() == {"snapshots/test_it/test_says.sqlite"}
    assert {name: after[name] for name in mine} == mine


MAKE = """
import pathlib, sqlite3
pathlib.Path("snapshots").mkdir(exist_ok=True)
db = sqlite3.connect("snapshots/memory_test.sqlite")
db.executescript("PRAGMA journal_mode = wal; CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT);")
db.close()
"""
