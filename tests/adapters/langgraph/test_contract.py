"""The contract kit, pointed at the adapter: every clause that a checkpointer can offer, kills and faults included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["on_sqlite", "on_valkey"])
def test_the_contract_holds(tmp_path: Path, name: str) -> None:
    report = tmp_path / "report.json"
    target = f"tests.adapters.langgraph.target:{name}"
    script = "from everturn.cli import main; main()"
    command = [sys.executable, "-c", script, "check", target, "--quick", "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(report.read_text())
