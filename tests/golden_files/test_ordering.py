"""Chains: a test may start from what another is expected to leave behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.golden_files.conftest import Project

# The last comes first, as nobody would write it.
CHAIN = """
    @pytest.mark.snapshot_db(start="test_b")
    def test_c(snapshot_db):
        say(snapshot_db.path, "c")

    @pytest.mark.snapshot_db(start="test_a")
    def test_b(snapshot_db):
        say(snapshot_db.path, "b")

    @pytest.mark.snapshot_db(build=make)
    def test_a(snapshot_db):
        say(snapshot_db.path, "a")
"""


def bodies(project: Project, artifact: str) -> list[str]:
    with closing(sqlite3.connect(project.root / "snapshots" / "test_it" / f"{artifact}.sqlite")) as db:
        return [body for (body,) in db.execute("SELECT body FROM messages ORDER BY id")]


def test_an_update_writes_a_start_before_the_tests_that_need_it(project: Project) -> None:
    project.tests(CHAIN)
    project.update().assert_outcomes(passed=3)
    assert bodies(project, "test_c") == ["hello", "world", "a", "b", "c"]
    project.pytest().assert_outcomes(passed=3)
    project.tests(CHAIN.replace('"a")', '"A")'))
    project.update().assert_outcomes(passed=3)
    assert bodies(project, "test_c") == ["hello", "world", "A", "b", "c"]


def test_a_comparison_starts_from_the_committed_artifact_whatever_the_order(project: Project) -> None:
    project.tests(CHAIN)
    project.update()
    result = project.pytest("-v")
    result.stdout.fnmatch_lines(["*test_c PASSED*", "*test_b PASSED*", "*test_a PASSED*"])  # as they are written
    project.pytest("-k", "test_c").assert_outcomes(passed=1)
    project.tests(CHAIN.replace('"a")', '"A")'))
    result = project.pytest()
    result.assert_outcomes(passed=2, failed=1)  # only the one that changed
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_a*"])


def test_a_test_is_not_updated_from_a_start_whose_own_test_failed(project: Project) -> None:
    project.tests(CHAIN)
    project.update()
    before = project.files()
    project.tests(CHAIN.replace('"a")', '"a"); assert False'))
    result = project.update()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*not updated: test_it.py::test_a, which writes what it starts from, did not pass",
            "*not updated: test_it.py::test_b, which writes what it starts from, did not pass",
        ]
    )
    after = project.files()
    assert {name: after[name] for name in after if name.endswith(".sqlite")} == {
        name: before[name] for name in before if name.endswith(".sqlite")
    }


def test_a_start_whose_test_is_skipped_is_the_committed_one(project: Project) -> None:
    project.tests(CHAIN)
    project.update()
    project.tests(
        CHAIN.replace("def test_a(snapshot_db):", "def test_a(snapshot_db):\n        pytest.skip('not today')")
    )
    project.update().assert_outcomes(passed=2, skipped=1)


def test_a_part_of_a_chain_is_updated_from_the_committed_start(project: Project) -> None:
    project.tests(CHAIN)
    result = project.update("-k", "test_b")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["there is no snapshots/test_it/test_a.sqlite, which the test starts from: it is the artifact of a test*"]
    )
    project.update().assert_outcomes(passed=3)
    project.tests(CHAIN.replace('"b")', '"B")'))
    project.update("-k", "test_b").assert_outcomes(passed=1)
    assert bodies(project, "test_b") == ["hello", "world", "a", "B"]


def test_a_plugin_that_shuffles_after_us_is_noticed(project: Project) -> None:
    project.tests(CHAIN)
    project.write(
        "conftest.py",
        """
        import pytest

        def pytest_collection_finish(session):
            session.items.reverse()
    """,
    )
    result = project.update()
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*has not run yet. Something changed the order of the tests*"])


def test_a_circle_is_refused(project: Project) -> None:
    project.tests(CHAIN.replace("build=make", 'start="test_c"'))
    result = project.pytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*in a circle: test_it.py::test_c -> test_it.py::test_b -> test_it.py::test_a -> test_it.py::test_c. Break it"]
    )
    project.tests("""
        @pytest.mark.snapshot_db(start="test_self")
        def test_self(snapshot_db): pass
    """)
    assert project.update().ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "start",
    [
        "test_first",
        '"test_first"',
        '"test_it/test_first"',
        '"test_first@half way"',
        '"test_params[x-1]"',
        '"TestIn::test_class"',
        "TestIn.test_class",
        '"test_named+users"',
    ],
)
def test_a_start_may_be_named_in_many_ways(project: Project, start: str) -> None:
    project.tests(f"""
        def test_first(snapshot_db):
            make(snapshot_db.path)
            snapshot_db.check("half way")

        @pytest.mark.parametrize("y", [1])
        @pytest.mark.parametrize("x", ["x"])
        def test_params(snapshot_db, x, y):
            make(snapshot_db.path)

        def test_named(snapshot_db):
            make(snapshot_db["users"].path)

        class TestIn:
            def test_class(self, snapshot_db):
                make(snapshot_db.path)

        @pytest.mark.snapshot_db(start={start})
        def test_last(snapshot_db):
            say(snapshot_db.path, "last")
    """)
    project.update("--snapshot-update").assert_outcomes(passed=5)
    assert bodies(project, "test_last") == ["hello", "world", "last"]
    project.pytest().assert_outcomes(passed=5)


def test_a_start_may_be_of_another_module(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(start="test_other/test_first")
        def test_last(snapshot_db):
            say(snapshot_db.path, "last")
    """)
    project.tests(
        """
        def test_first(snapshot_db):
            make(snapshot_db.path)
        """,
        "test_other.py",
    )
    project.update().assert_outcomes(passed=2)
    project.pytest("test_it.py").assert_outcomes(passed=1)


def test_a_function_builds_a_start_once_and_its_masks_are_those_of_the_mark(project: Project) -> None:
    project.tests("""
        import pathlib, time

        def stamped(path):
            make(path)
            db = sqlite3.connect(path)
            with db:
                db.execute("CREATE TABLE at (t REAL)")
                db.execute("INSERT INTO at VALUES (?)", (time.time(),))
            db.close()
            with open("built", "a") as log:
                log.write("x")

        pytestmark = pytest.mark.snapshot_db("base", build=stamped, mask=["at.t"])

        def test_a(snapshot_db):
            say(snapshot_db.path, "a")

        def test_b(snapshot_db):
            say(snapshot_db.path, "b")

        def test_without():
            pass
    """)
    project.update().assert_outcomes(passed=3)
    assert (project.root / "built").read_text() == "x"
    before = project.files()
    project.pytest().assert_outcomes(passed=3)
    assert project.files() == before
    result = project.update()
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("written:*")
    assert "snapshots/test_it/base.sqlite" in project.artifacts()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("raise ValueError('no luck')", "build=build failed: ValueError: no luck"),
        ("pass", "build=build made no file: it is called with the path of the file to make"),
        ("path.write_text('x' * 1000)", "*is not a SQLite database*"),
    ],
)
def test_a_build_that_fails_fails_the_test_and_writes_nothing(project: Project, build: str, message: str) -> None:
    project.tests(f"""
        def build(path):
            {build}

        @pytest.mark.snapshot_db(build=build)
        def test_a(snapshot_db):
            pass
    """)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
    assert project.artifacts() == []


def test_the_nearest_mark_says_where_a_test_starts(project: Project) -> None:
    project.tests("""
        pytestmark = pytest.mark.snapshot_db(build=make)

        def test_module(snapshot_db):
            say(snapshot_db.path, "x")

        @pytest.mark.snapshot_db(start=None)
        def test_new(snapshot_db):
            assert not snapshot_db.path.exists()
            make(snapshot_db.path)
    """)
    project.update().assert_outcomes(passed=2)
    assert bodies(project, "test_module") == ["hello", "world", "x"]
    assert bodies(project, "test_new") == ["hello", "world"]
