"""The GitHub Action in action.yml: its inputs reach the command, and its steps run as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "action.yml").read_text("utf-8")
ACTION: Any = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
PAGE = (ROOT / "docs/recipes/github-actions.md").read_text("utf-8")


def test_it_has_what_github_asks_for() -> None:
    assert {"name", "description", "inputs", "runs"} <= ACTION.keys()
    assert ACTION["runs"]["using"] == "composite"
    assert all("shell" in step for step in STEPS if "run" in step)
    assert ACTION["inputs"]["target"]["required"]
    assert all("default" in one for name, one in ACTION["inputs"].items() if name != "target")


def test_every_input_is_used_and_described_and_no_other_is() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", TEXT))
    assert used == set(ACTION["inputs"])
    assert all(one["description"] for one in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    assert used <= set(re.findall(r"`([\w-]+)`", PAGE))


def test_no_input_is_ever_text_of_a_script() -> None:
    assert [step["run"] for step in STEPS if "${{" in step.get("run", "")] == []


def test_other_actions_are_pinned_by_commit() -> None:
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in STEPS if "uses" in step)


def test_the_job_on_the_page_gives_inputs_that_exist() -> None:
    job = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
    (step,) = [step for step in job["jobs"]["contract"]["steps"] if step["uses"].startswith("everturn/everturn@")]
    assert step["with"].keys() <= ACTION["inputs"].keys()


def checked(folder: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the step `check` by bash, as GitHub does. Returns the exit code, the outputs and the summary."""
    (step,) = [step for step in STEPS if step.get("id") == "check"]
    given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step["env"].items()
    }
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | variables | files | {"PATH": path, "PYTHONPATH": str(ROOT)}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    summary = Path(files["GITHUB_STEP_SUMMARY"])
    return done.returncode, Path(files["GITHUB_OUTPUT"]).read_text(), summary.read_text() if summary.exists() else ""


def test_its_step_runs_the_contract_and_leaves_reports(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[known]\norder = "not true"\n')
    inputs = {"quick": "true", "contract": "1", "seed": "7", "ledger": "known.toml", "reports": "out put"}
    code, outputs, summary = checked(tmp_path, target="tests.kit.sound.memory:threads", **inputs)
    badge = json.loads((tmp_path / "out put/badge.json").read_text())
    report = json.loads((tmp_path / "out put/report.json").read_text())
    assert (code, report["seed"], report["contract_version"]) == (1, 7, "1")
    assert outputs == f"exit-code=1\noutcome={badge['message']}\n"
    assert "remove the entry" in summary
    assert (tmp_path / "out put/report.html").exists()


@pytest.mark.parametrize("target", ["nonsense; touch owned", "--list", "$(touch owned)"])
def test_a_target_that_cannot_run_ends_with_2_and_is_no_command(tmp_path: Path, target: str) -> None:
    code, outputs, summary = checked(tmp_path, target=target)
    assert (code, outputs, summary) == (2, "exit-code=2\noutcome=\n", "")
    assert not (tmp_path / "owned").exists()
