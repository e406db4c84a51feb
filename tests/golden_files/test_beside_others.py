"""Beside syrupy, pytest-snapshot and xdist, in either load order, with pytest 8 and 9: each works as if alone."""

from __future__ import annotations

import pytest

from tests.golden_files.conftest import PLUGIN, Project
from tests.golden_files.peers import MODULES, Ran, run
from tests.tiers import deep

OURS = """
    def test_ours(snapshot_db):
        make(snapshot_db.path)
        say(snapshot_db.path, "{body}")
"""
THEIRS = {
    "syrupy": """
    def test_theirs(snapshot):
        assert "{body}" == snapshot
""",
    "pytest-snapshot": """
    def test_theirs(snapshot):
        snapshot.assert_match("{body}", "their.txt")
""",
}


@pytest.mark.parametrize(
    ("is_first", "other", "version"),
    [
        (True, "syrupy", "pytest8"),
        (False, "pytest-snapshot", "pytest9"),
        deep((False, "syrupy", "pytest9")),
        deep((True, "pytest-snapshot", "pytest9")),
        deep((False, "pytest-snapshot", "pytest8")),
        deep((False, "syrupy", "pytest8")),
        deep((True, "syrupy", "pytest9")),
        deep((True, "pytest-snapshot", "pytest8")),
    ],
)
def test_one_flag_updates_both(project: Project, version: str, other: str, is_first: bool) -> None:
    plugins = [PLUGIN, MODULES[other]][:: 1 if is_first else -1]

    def both(body: str, *args: str) -> Ran:
        project.tests((OURS + THEIRS[other]).format(body=body))
        return run(project.root, *args, plugins=plugins, sets=[version, other])

    # pytest-snapshot has a test that wrote something end with an error in its teardown, to be looked at.
    errors = 1 if other == "pytest-snapshot" else 0
    written = both("one", "--snapshot-update")
    assert (written.count("passed"), written.count("failed"), written.count("error")) == (2, 0, errors), written.text
    assert "snapshots/test_it/test_ours.sqlite" in project.artifacts()
    assert len(project.artifacts()) == 2
    changed = both("two")
    assert (changed.code, changed.count("failed")) == (1, 2), changed.text
    updated = both("two", "--snapshot-update")
    assert (updated.count("passed"), updated.count("error")) == (2, errors), updated.text
    assert both("two").count("passed") == 2


def test_syrupy_forgets_its_own_and_leaves_ours(project: Project) -> None:
    """In an update syrupy deletes what it does not know in its own folder. Ours is another."""
    project.tests((OURS + THEIRS["syrupy"]).format(body="one"))
    run(project.root, "--snapshot-update", plugins=["syrupy", PLUGIN], sets=["syrupy"])
    assert len(project.artifacts()) == 2
    project.tests((OURS + THEIRS["syrupy"].replace("test_theirs", "test_other")).format(body="one"))
    done = run(project.root, "--snapshot-update", plugins=["syrupy", PLUGIN], sets=["syrupy"])
    assert (done.code, done.count("passed")) == (0, 2), done.text
    assert "snapshots/test_it/test_ours.sqlite" in project.artifacts()
    assert "1 unused snapshot deleted" in done.text, done.text


def test_in_ci_their_update_goes_on_and_ours_waits_for_its_flag(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tests((OURS + THEIRS["syrupy"]).format(body="one"))
    project.write("conftest.py", "import os; os.environ['CI'] = 'true'")
    done = run(project.root, "--snapshot-update", plugins=["syrupy", PLUGIN], sets=["syrupy"])
    assert (done.count("passed"), done.count("failed")) == (1, 1), done.text
    assert project.artifacts() == ["__snapshots__/test_it.ambr"]


def test_a_conftest_that_has_the_flag_keeps_it(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        def pytest_addoption(parser):
            parser.addoption("--snapshot-update", action="store_true", dest="mine")

        def pytest_report_header(config):
            return f"mine: {config.option.mine}"
    """,
    )
    project.tests(OURS.format(body="one"))
    result = project.update()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mine: True"])
    assert project.artifacts() == ["snapshots/test_it/test_ours.sqlite"]


def test_the_plugin_may_be_named_in_a_conftest(project: Project) -> None:
    project.write("conftest.py", f"pytest_plugins = [{PLUGIN!r}]")
    project.tests(OURS.format(body="one"))
    done = run(project.root, "--snapshot-update", plugins=[], sets=[])
    assert (done.code, done.count("passed")) == (0, 1), done.text
    done = run(project.root, "--help", plugins=[], sets=[])
    assert "--snapshot-db-ci" in done.text


def test_help_and_markers_speak_of_it(project: Project) -> None:
    assert "--snapshot-update" in run(project.root, "--help", plugins=[PLUGIN], sets=[]).text
    assert "@pytest.mark.snapshot_db(file=None" in run(project.root, "--markers", plugins=[PLUGIN], sets=[]).text
    assert "snapshot_db -- " in run(project.root, "--fixtures", plugins=[PLUGIN], sets=[]).text


def test_a_run_without_our_tests_pays_next_to_nothing(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import sys

        def test_light():
            heavy = {"apsw", "sqlite3", "msgspec", "typer", "rich", "asyncio", "everturn.store"}
            assert heavy & sys.modules.keys() == set()
    """,
    )
    done = run(project.root, plugins=[PLUGIN], sets=[])
    assert done.count("passed") == 1, done.text
    assert "snapshot_db" not in done.text


# --- xdist -----------------------------------------------------------------------------------------------------------

MANY = """
    @pytest.mark.parametrize("n", range(6))
    def test_many(snapshot_db, n):
        make(snapshot_db.path)
        say(snapshot_db.path, "{body}", str(n))
"""
CHAIN = """
    @pytest.mark.snapshot_db(start="test_b")
    def test_c(snapshot_db):
        say(snapshot_db.path, "c")

    @pytest.mark.snapshot_db(start="test_a")
    def test_b(snapshot_db):
        say(snapshot_db.path, "b")

    @pytest.mark.snapshot_db(build=make)
    def test_a(snapshot_db):
        say(snapshot_db.path, "{body}")
"""


def workers(project: Project, *args: str, version: str = "pytest9") -> Ran:
    return run(project.root, "-n", "2", *args, plugins=["xdist", PLUGIN], sets=[version, "xdist"])


@pytest.mark.parametrize("version", [deep("pytest8"), "pytest9"])
def test_workers_write_and_compare_and_their_summaries_are_one(project: Project, version: str) -> None:
    project.tests(MANY.format(body="x"))
    done = workers(project, "--snapshot-update", version=version)
    assert (done.code, done.count("passed")) == (0, 6), done.text
    assert done.text.count("written: snapshots/test_it/test_many-") == 6
    assert len(project.artifacts()) == 6
    done = workers(project, version=version)
    assert (done.code, done.count("passed")) == (0, 6), done.text
    assert "no test uses" not in done.text
    project.tests(MANY.format(body="x").replace("range(6)", "range(4)"))
    done = workers(project, version=version)
    assert done.count("passed") == 4, done.text
    assert "no test uses these" in done.text
    assert done.text.count("  snapshots/test_it/test_many-") == 2
    done = workers(project, "-k", "not 3", version=version)
    assert "no test uses these" not in done.text


@pytest.mark.parametrize("version", ["pytest8", deep("pytest9")])
def test_chains_are_updated_by_one_worker_in_their_order(project: Project, version: str) -> None:
    project.tests(CHAIN.format(body="a") + MANY.format(body="x"))
    for body in ("a", "another"):
        project.tests(CHAIN.format(body=body) + MANY.format(body="x"))
        done = workers(project, "--snapshot-update", "--dist", "loadgroup", version=version)
        assert (done.code, done.count("passed")) == (0, 9), done.text
        done = workers(project, version=version)
        assert (done.code, done.count("passed")) == (0, 9), done.text


@pytest.mark.parametrize(
    ("version", "dist"), [("pytest8", "load"), deep(("pytest9", "load")), deep(("pytest9", "loadfile"))]
)
def test_chains_that_would_be_parted_stop_the_run_with_a_usage_message(
    project: Project, dist: str, version: str
) -> None:
    project.tests(CHAIN.format(body="a"))
    done = workers(project, "--snapshot-update", "--dist", dist, version=version)
    assert done.code == 4, done.text
    assert "To update them add --dist loadgroup" in done.text
    assert "INTERNALERROR" not in done.text
    assert "Traceback" not in done.text
    assert project.artifacts() == []


def test_a_group_of_the_users_own_is_kept_and_two_of_them_are_refused(project: Project) -> None:
    mine = "    @pytest.mark.xdist_group('{}')\n    @pytest.mark.snapshot_db(start='test_{}')"
    project.tests(
        CHAIN.format(body="a").replace('    @pytest.mark.snapshot_db(start="test_b")', mine.format("one", "b"))
    )
    done = workers(project, "--snapshot-update", "--dist", "loadgroup", "-v")
    assert (done.code, done.count("passed")) == (0, 3), done.text
    other = CHAIN.format(body="a").replace('    @pytest.mark.snapshot_db(start="test_b")', mine.format("one", "b"))
    project.tests(other.replace('    @pytest.mark.snapshot_db(start="test_a")', mine.format("two", "a")))
    done = workers(project, "--snapshot-update", "--dist", "loadgroup")
    assert done.code == 4, done.text
    assert "let it be the same" in done.text


def test_tests_that_share_a_built_start_are_a_chain_too(project: Project) -> None:
    """Two workers would each build one, and one of these would not be the start that is kept."""
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        @pytest.mark.parametrize("n", range(2))
        def test_both(snapshot_db, n):
            say(snapshot_db.path, str(n))
    """)
    assert workers(project, "--snapshot-update").code == 4
    assert workers(project, "--snapshot-update", "--dist", "loadgroup").count("passed") == 2
    assert workers(project).count("passed") == 2


def test_what_is_refused_at_collection_is_refused_under_xdist(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(start="test_b")
        def test_a(snapshot_db): pass

        @pytest.mark.snapshot_db(start="test_a")
        def test_b(snapshot_db): pass
    """)
    done = workers(project)
    assert done.code == 4, done.text
    assert "in a circle: test_it.py::test_a -> test_it.py::test_b -> test_it.py::test_a" in done.text
    assert "INTERNALERROR" not in done.text


def test_all_of_them_at_once(project: Project) -> None:
    project.tests((OURS + THEIRS["syrupy"] + CHAIN).format(body="one"))
    plugins, sets = ["xdist", PLUGIN, "syrupy"], ["xdist", "syrupy"]
    done = run(project.root, "-n2", "--dist=loadgroup", "--snapshot-update", plugins=plugins, sets=sets)
    assert (done.code, done.count("passed")) == (0, 5), done.text
    done = run(project.root, "-n2", plugins=plugins, sets=sets)
    assert (done.code, done.count("passed")) == (0, 5), done.text
