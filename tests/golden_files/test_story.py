"""The story it came from: a refactored rollback wipes the snapshots. The unit test passes, ours says what is gone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "snapshot_db"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    leave = shutil.ignore_patterns("__pycache__", ".venv", ".pytest_cache")
    return shutil.copytree(EXAMPLE, tmp_path / "example", ignore=leave)


def pytest_in(folder: Path, *args: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "everturn", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


def refactor(folder: Path) -> None:
    shutil.copy(folder / "refactored" / "memory_manager.py", folder)


def test_as_it_was_all_tests_pass(example: Path) -> None:
    assert "6 passed" in pytest_in(example)


def test_the_unit_test_does_not_see_what_the_refactoring_broke(example: Path) -> None:
    refactor(example)
    assert "1 passed" in pytest_in(example, "tests/test_unit.py")


def test_snapshot_db_does_and_shows_the_checkpoints_that_are_missing(example: Path) -> None:
    refactor(example)
    text = pytest_in(example, "-k", "keeps_the_checkpoints")
    assert "1 failed" in text
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (EXAMPLE / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (shown,) = (block for language, block in blocks if not language)
    assert shown in text, "what the README shows is what is seen"


def test_a_kill_in_the_middle_of_it_leaves_a_file_without_tables(example: Path) -> None:
    refactor(example)
    text = pytest_in(example, "-k", "killed")
    assert "table messages is missing" in text
    assert "table snapshots is missing" in text


def test_an_update_says_yes_to_the_loss_and_only_then_does_it_pass(example: Path) -> None:
    refactor(example)
    assert "written: tests/snapshots/test_storage/test_rollback_keeps_the_checkpoints.sqlite" in pytest_in(
        example, "--snapshot-update", "-k", "keeps_the_checkpoints"
    )
    assert "1 passed" in pytest_in(example, "-k", "keeps_the_checkpoints")


def test_the_start_file_is_made_by_the_script_that_says_so(example: Path) -> None:
    """But for the clock."""
    start = example / "tests" / "snapshots" / "memory_test.sqlite"
    shutil.copy(start, example / "committed.sqlite")
    subprocess.run([sys.executable, "make_memory_file.py"], cwd=example, check=True, timeout=60)
    command = [sys.executable, "-m", "everturn.cli", "golden", "diff", "committed.sqlite", str(start)]
    subprocess.run([*command, "--mask", "*.created_at"], cwd=example, check=True, timeout=60)


def test_every_command_of_the_readme_exists(example: Path) -> None:
    text = (EXAMPLE / "README.md").read_text("utf-8")
    for path in ("refactored/memory_manager.py", "tests/test_unit.py", "tests/snapshots/memory_test.sqlite"):
        assert path in text
        assert (example / path).exists()
    assert (EXAMPLE / "../../docs/snapshot-db.md").exists()


def test_running_pytest_in_the_example_leaves_the_start_file_as_it_is(example: Path) -> None:
    """A script that makes it was named so that pytest imported it, and it was written anew."""
    start = example / "tests" / "snapshots" / "memory_test.sqlite"
    before = start.read_bytes()
    pytest_in(example)
    assert start.read_bytes() == before
