"""The demo shows its point every time, and shows nothing that did not happen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import everturn
from everturn.cli.demo.verdict import DemoCounts, judge
from tests.cli.conftest import Run


def test_the_incident_is_replayed_over_both_stores(tmp_path: Path) -> None:
    tmp_path /= "a folder"  # with a space: the shell splits there
    command = [sys.executable, "-m", "everturn.cli", "demo", "--seed", "7", "--keep", str(tmp_path)]
    # env: readline, which pytest imports, tells children of the terminal's width behind Python's back.
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    assert "\x1b" not in ran.stdout
    table = {line.rsplit(maxsplit=4)[0].strip(): list(map(int, line.split()[-4:])) for line in _rows(ran.stdout)}
    naive, ours = table["a JSON list, read and written back"], table["everturn"]
    assert naive[1] > 0  # lost
    assert ours[1:] == [0, 0, 0]
    assert len(re.findall(r"killed with -9$", ran.stdout, re.MULTILINE)) == 2
    log, show, check = re.findall(r"^    (\S.*)$", ran.stdout.partition("Try next:")[2], re.MULTILINE)
    for line in (log, show, check.replace("check ", "check --quick --layers sequential ")):  # pasted as they stand
        pasted = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
        assert pasted.returncode == 0, pasted.stderr
    assert [line.split(" -m everturn ")[1].split()[0] for line in (log, show, check)] == ["log", "show", "check"]
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        assert store.verify().ok
        messages = len(store.get_history("customer-42"))
        assert messages in {2 * ours[0], 2 * ours[0] + 2}  # what the killed worker had under way may have landed
        assert [snapshot.label for snapshot in store.list_snapshots("customer-42")] == ["before the new prompt"]


def test_files_that_are_there_are_not_counted_as_the_demo(run: Run, tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    ran = run("demo", "--keep", tmp_path)
    assert ran.code == 2
    assert ran.err == f"everturn: keep: {tmp_path} is not empty, and would be counted as well; name another\n"


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(r"(\s+\d+){4}\s*$", line)]


def test_the_verdict_counts_what_is_lost_doubled_and_torn() -> None:
    messages = ["question 1", "answer 1", "question 2", "question 3", "answer 3", "answer 3", "answer 2"]
    assert judge(["1", "2", "3", "4"], messages) == DemoCounts(4, lost=1, doubled=1, torn=1)
    assert judge(["1"], ["question 1", "answer 1"]).sound
    assert judge([], []).sound
