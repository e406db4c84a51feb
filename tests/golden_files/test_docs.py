"""docs/snapshot-db.md: its tests run, and pass, and what it says of names is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from everturn.testing.golden import GoldenDatabase, GoldenError, SnapshotDb, SnapshotMismatch
from tests.golden_files.conftest import Project

PAGE = (Path(__file__).parents[2] / "docs" / "snapshot-db.md").read_text("utf-8")


def test_the_tests_of_the_page_fail_once_are_written_and_pass(project: Project) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    count = len(re.findall(r"^def test_", code, re.MULTILINE)) + 3  # one of them has four parameters
    project.write("tests/test_memory.py", code)
    project.pytest().assert_outcomes(failed=count)
    project.update().assert_outcomes(passed=count)
    result = project.pytest()
    result.assert_outcomes(passed=count)
    result.stdout.no_fnmatch_line("*no test uses these*")
    result = project.update()
    result.stdout.no_fnmatch_line("written: *")
    assert "tests/snapshots/test_memory/test_rollback_keeps_the_snapshots.sqlite" in project.artifacts()
    assert (
        "tests/snapshots/test_memory/test_stages_and_two_files@after-the-first-rollback.sqlite" in project.artifacts()
    )


def test_the_page_lists_the_face_of_the_fixture() -> None:
    public = {name for face in (GoldenDatabase, SnapshotDb) for name in vars(face) if not name.startswith("_")} | {
        "timeout"
    }
    listed = set(re.findall(r"^\| `snapshot_db\.(\w+)", PAGE, re.MULTILINE))
    assert public == listed
    for name in ("run", "kill_during", "mask", "check"):
        assert inspect.getdoc(getattr(SnapshotDb, name))
    assert issubclass(SnapshotMismatch, AssertionError)
    assert issubclass(GoldenError, Exception)
