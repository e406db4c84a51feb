"""Artifacts that no test uses any more are listed, and large ones are warned of."""

from __future__ import annotations

import pytest

from tests.golden_files.conftest import Project

# --- unused artifacts ------------------------------------------------------------------------------------------------

TWO = """
    def test_a(snapshot_db):
        make(snapshot_db.path)

    def test_b(snapshot_db):
        make(snapshot_db.path)
        snapshot_db.check("made")
"""


@pytest.fixture
def with_unused(project: Project) -> Project:
    project.tests(TWO)
    project.tests(TWO, "test_gone.py")
    project.update().assert_outcomes(passed=4)
    (project.root / "test_gone.py").unlink()
    project.tests(TWO.replace("test_a", "test_c").replace('check("made")', 'check("done")'))
    project.update().assert_outcomes(passed=2)
    return project


def test_unused_artifacts_are_listed_after_a_complete_run_and_kept(with_unused: Project) -> None:
    before = with_unused.files()
    result = with_unused.pytest()
    result.stdout.fnmatch_lines(
        [
            "no test uses these any more*",
            "  snapshots/test_gone/test_a.sqlite",
            "  snapshots/test_gone/test_b.sqlite",
            "  snapshots/test_gone/test_b@made.sqlite",
            "  snapshots/test_it/test_a.sqlite",
            "  snapshots/test_it/test_b@made.sqlite",
        ]
    )
    result.stdout.no_fnmatch_line("  snapshots/test_it/test_c.sqlite")
    assert with_unused.files() == before


@pytest.mark.parametrize(
    "choice", [["-k", "test_b"], ["test_it.py::test_b"], ["--deselect", "test_it.py::test_c"], ["--collect-only"]]
)
def test_unused_artifacts_are_not_listed_after_part_of_a_run(with_unused: Project, choice: list[str]) -> None:
    with_unused.pytest(*choice).stdout.no_fnmatch_line("*no test uses these*")


def test_a_run_of_one_module_lists_what_that_module_does_not_use(with_unused: Project) -> None:
    result = with_unused.pytest("test_it.py")
    result.stdout.fnmatch_lines(["  snapshots/test_it/test_a.sqlite"])
    result.stdout.no_fnmatch_line("*test_gone*")


def test_what_a_test_that_failed_may_use_is_not_called_unused(project: Project) -> None:
    project.tests(TWO)
    project.update()
    project.tests(TWO.replace("make(snapshot_db.path)", "assert False", 2))
    result = project.pytest()
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*no test uses these*")


def test_a_run_that_stopped_early_lists_nothing(with_unused: Project) -> None:
    with_unused.tests(TWO.replace("make(snapshot_db.path)", "assert False", 1))
    with_unused.pytest("-x").stdout.no_fnmatch_line("*no test uses these*")


# --- size ------------------------------------------------------------------------------------------------------------


LARGE = """
    def test_large(snapshot_db):
        db = sqlite3.connect(snapshot_db.path)
        db.execute("CREATE TABLE t (x BLOB)")
        db.execute("INSERT INTO t VALUES (zeroblob(1200000))")
        db.commit()
        db.close()
"""


def test_a_large_artifact_is_warned_of_when_it_is_written(project: Project) -> None:
    project.tests(LARGE)
    result = project.update("-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*LargeArtifactWarning: snapshots/test_it/test_large.sqlite has 1.2 MiB*"])
    project.pytest("-W", "default").assert_outcomes(passed=1, warnings=0)


def test_where_warnings_are_errors_a_large_artifact_is_written_even_so(project: Project) -> None:
    project.tests(LARGE)
    result = project.update("-W", "error")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["written: snapshots/test_it/test_large.sqlite (1.2 MiB: large for git)"])
