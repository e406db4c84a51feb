"""The commands in `console` and `yaml` blocks need a project, a server or a clone around them, and are run in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from everturn.testing.servers import wait_until
from everturn.testing.servers.binaries import free_port
from tests.docs.test_snippets import ROOT, snippets

BIN = Path(sys.executable).parent
MEMORY = """
import threading
from copy import deepcopy

class Store:
    def __init__(self):
        self.lock, self.sessions = threading.Lock(), {}
    def add_messages(self, session_id, messages):
        with self.lock:
            self.sessions[session_id] = [*self.sessions.get(session_id, []), *deepcopy(messages)]
    def get_history(self, session_id):
        with self.lock:
            return deepcopy(self.sessions.get(session_id, []))

def factory(where):
    return Store()

factory.processes = False
"""


def environment() -> dict[str, str]:
    """That of a person at a desk: our commands on the PATH, nothing of the pytest that runs this, nor the plugin that
    LangChain brings along, which takes seconds to import."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_") and name != "CI"}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "PYTHONPATH": "", "PYTEST_ADDOPTS": "-p no:langsmith_plugin"}


def lines(page: str, language: str, block: int = 0) -> list[str]:
    """The commands of a block, without what is said beside them."""
    code = snippets(ROOT / page, language)[block]
    return [re.split(r"\s+#\s", line)[0] for line in code.splitlines() if line.strip()]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def ends_with(codes: Sequence[int], commands: Sequence[str], folder: Path) -> None:
    for code, command in zip(codes, commands, strict=True):
        done = run(command, folder)
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"


def project(folder: Path, package: str) -> Path:
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "memory.py").write_text(MEMORY, "utf-8")
    return folder


def test_the_ways_to_run_the_contract(tmp_path: Path) -> None:
    quick, whole, items, init = lines("docs/contract.md", "console")
    commands = [
        f"{quick} --layers persistence",
        f"{whole} --layers sequential,persistence",
        f"{items} -k 'order or another-process'",
        init,
    ]
    ends_with([0, 0, 0, 0], commands, project(tmp_path, "myapp"))


def test_the_store_on_the_page_of_the_contract_keeps_it(tmp_path: Path) -> None:
    page = ROOT / "docs/contract.md"
    store, of_pytest = snippets(page, "python")
    (known,) = snippets(page, "toml")
    (tmp_path / "memory.py").write_text(store, "utf-8")
    (tmp_path / "test_memory.py").write_text(of_pytest, "utf-8")
    (tmp_path / "known.toml").write_text(known, "utf-8")
    done = run("everturn check memory:factory --quick", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"More than (\d+) clauses hold", page.read_text("utf-8"))
    held = re.search(r"(\d+) clauses offered, all hold", done.stdout)
    assert told is not None
    assert held is not None
    assert int(held[1]) >= int(told[1])
    ends_with([0], ["python -m pytest -q test_memory.py -k 'order or roles'"], tmp_path)
    _, quick, ledger, some = lines("docs/contract.md", "console", 1)
    ends_with([0, 0], [f"{quick} -k 'order or reopen'", f"{some} --memory-quick"], tmp_path)
    # An entry that passes is refused, as the page says.
    done = run(f"{ledger} --memory-quick", tmp_path)
    assert (done.returncode, "garbage" in done.stdout) == (1, True), done.stdout + done.stderr


def test_the_job_for_github(tmp_path: Path) -> None:
    _, job = snippets(ROOT / "docs/recipes/github-actions.md", "yaml")
    install, check = re.findall(r"- run: (.+)", job)
    assert install == "pip install 'everturn[cli,test]' ."
    ends_with([0], [f"GITHUB_STEP_SUMMARY=report.md; {check}"], project(tmp_path, "my_package"))
    assert {path.name for path in tmp_path.glob("report.*")} == {"report.json", "report.html", "report.md"}


def test_the_baseline_for_github(tmp_path: Path) -> None:
    commands = [f"{line} --layers sequential" for line in lines("docs/recipes/github-actions.md", "console")]
    ends_with([0, 0], commands, project(tmp_path, "my_package"))


def test_a_golden_file_from_its_first_run_into_git(tmp_path: Path) -> None:
    code = "\n".join(snippets(ROOT / "docs/snapshot-db.md", "python"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_memory.py").write_text(code, "utf-8")
    ends_with([0], ["git init -q"], tmp_path)
    ends_with([1, 0, 0, 0], lines("docs/snapshot-db.md", "console"), tmp_path)  # the first fails, as it says
    ends_with([0, 0], lines("docs/snapshot-db.md", "console", 1), tmp_path)
    shown = run("git diff --cached --no-ext-diff -- tests/snapshots", tmp_path)
    assert "snap-1" in shown.stdout


@pytest.mark.parametrize("number", [0, 1], ids=["gunicorn", "uvicorn"])
def test_workers_serve_the_application(tmp_path: Path, number: int) -> None:
    command = lines("docs/adapters/fastapi.md", "console")[number]
    (tmp_path / "main.py").write_text(snippets(ROOT / "docs/adapters/fastapi.md", "python")[0], "utf-8")
    port = free_port()
    ports = {"GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{port}", "UVICORN_PORT": str(port)}
    address = f"http://127.0.0.1:{port}/sessions/a/messages"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return bool(answer.read() == b"[]")
        except OSError:
            return False

    server = subprocess.Popen(
        command.split(), cwd=tmp_path, env=environment() | ports, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(answers, "the workers answer", 60)
    finally:
        server.terminate()
        server.wait(30)


def test_a_peer_is_checked_as_the_page_says(tmp_path: Path) -> None:
    """Its install by a dry run, since it takes minutes; of its clauses the one that the page calls broken.

    Checked in a folder with a link to the examples: a check that fails leaves its histories where it ran.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    make, check = lines("docs/peers.md", "console")
    ends_with([0], [make.replace("make ", "make -n ")], ROOT)
    ours = check.removeprefix(".venv-bench/bin/")
    assert ours != check
    done = run(f"{ours} --quick --clause garbage", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / ".everturn" / "garbage.jsonl").exists()
    assert "garbage" in done.stdout


def test_no_other_kind_of_block_holds_commands() -> None:
    """`text` and `jsonl` show a drawing and a format; the rest is run here, beside, or in the tests of PostgreSQL."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    found = set(re.findall(r"^```(\w+)$", text, re.MULTILINE))
    assert found <= {"python", "sh", "sql", "pgsql", "console", "yaml", "text", "jsonl", "json", "hcl", "py", "toml"}
