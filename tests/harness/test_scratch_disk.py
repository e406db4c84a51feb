"""The folder in memory that tests write into: asked for once a run, and gone with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from everturn.testing.servers import binaries, postgres
from tests import scratch_disk


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the file system in memory, with room enough."""
    monkeypatch.setattr(scratch_disk, "MEMORY", tmp_path)
    monkeypatch.setattr(scratch_disk, "ROOM", 0)
    monkeypatch.setattr(scratch_disk, "_available", lambda: 1)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    return tmp_path


def test_all_processes_of_the_run_are_told_of_it(memory: Path) -> None:
    environment: dict[str, str] = {}
    folder = scratch_disk.use(environment)
    assert folder == memory / f"everturn-tests-{os.getpid()}"
    assert environment == {"TMPDIR": str(folder)}


def test_a_folder_that_was_asked_for_is_kept_to(memory: Path) -> None:
    assert scratch_disk.use({"TMPDIR": "/elsewhere"}) is None
    assert list(memory.iterdir()) == []


def test_where_memory_is_short_the_disk_is_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_disk, "ROOM", 2)
    assert scratch_disk.use({}) is None


def test_what_a_run_left_that_was_killed_is_removed_and_nobody_elses(memory: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    ours, anothers = memory / f"everturn-tests-{dead.pid}", memory / f"everturn-tests-{os.getppid()}"
    for folder in (ours, anothers):
        (folder / "pytest-of-root").mkdir(parents=True)
    scratch_disk.use({})
    assert not ours.exists()
    assert anothers.exists()


@pytest.mark.parametrize(("keep", "left"), [(True, ["pytest-of-root"]), (False, [])])
def test_a_run_that_failed_keeps_what_pytest_keeps(memory: Path, keep: bool, left: list[str]) -> None:
    folder = scratch_disk.use({})
    assert folder is not None
    for name in ("pytest-of-root", "everturn-kit-1"):
        (folder / name / "a").mkdir(parents=True)
    scratch_disk.leave(folder, keep=keep)
    assert folder.exists() == keep
    assert [path.name for path in memory.glob("*/*")] == left


@pytest.mark.parametrize("reachable", [True, False])
def test_a_postgres_that_its_user_cannot_reach_is_copied_once(
    memory: Path, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    monkeypatch.setattr(postgres, "unprivileged_owner", lambda: (65534, 65534))
    monkeypatch.setattr(binaries, "unprivileged_owner", lambda: (65534, 65534))
    monkeypatch.setattr(postgres, "is_open_to_all", lambda path: reachable)
    monkeypatch.delenv("EVERTURN_POSTGRES", raising=False)
    environment: dict[str, str] = {}
    scratch_disk.bring_postgres(memory, environment)
    if reachable:
        assert environment == {}
    else:
        program = Path(environment["EVERTURN_POSTGRES"])
        assert program.is_relative_to(memory)
        assert subprocess.run([program, "--version"], check=True, capture_output=True).stdout.startswith(b"postgres")
