"""The command as a whole: how it starts, what it is without its extra, completion, and where the docs are."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import everturn
from everturn.cli.app import COMMANDS
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{name}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def python(code: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | variables,
    )


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/everturn/__init__.py"}
    assert everturn.__version__ == version("everturn")
    released = re.search(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert released is not None
    assert released[1] == everturn.__version__


def test_the_version_is_shown_without_importing_any_command() -> None:
    code = """
import sys
from everturn.cli import main
sys.argv[1:] = ["--version"]
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith(("everturn.cli.", "rich", "asyncio", "everturn.store"))))
"""
    ran = python(code)
    assert ran.stdout.splitlines() == [f"everturn {everturn.__version__} (SQLite {sqlite()})", "everturn.cli.app"]


def sqlite() -> str:
    import apsw

    return apsw.sqlite_lib_version()


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_its_extra_the_command_says_what_to_install(name: str, tmp_path: Path) -> None:
    everturn.open(f"sqlite:///{tmp_path / 'memory.db'}").close()
    code = BLOCKED.format(name=name) + "from everturn.cli import main; main()"
    ran = python(code, "sessions", str(tmp_path / "memory.db"))
    assert re.fullmatch(rf"everturn: the command needs {name}[.\w]*: pip install 'everturn\[cli\]'\n", ran.stderr)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_another_module_that_is_missing_is_not_taken_for_the_extra() -> None:
    ran = python(BLOCKED.format(name="everturn.cli.app") + "from everturn.cli import main; main()", "--version")
    assert "everturn[cli]" not in ran.stderr


def test_the_library_needs_nothing_of_the_extra(tmp_path: Path) -> None:
    code = """
import everturn
with everturn.open(f"sqlite:///{sys.argv[1]}/memory.db") as store:
    store.save_context("a", "b", "c")
    print(len(store.get_history("a")))
from everturn.testing.report import read_json, write_html
from everturn.testing import MemoryContract, history, servers, results, golden
"""
    ran = python(BLOCKED.format(name="rich") + BLOCKED.format(name="typer") + code, str(tmp_path))
    assert (ran.stdout, ran.stderr) == ("2\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str, run: Run) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert ran.lines[0].startswith(f"Usage: everturn {name} ")
    assert "Examples:" in ran.out
    module, _, function = COMMANDS[name].partition(":")
    assert hasattr(import_module(f"everturn.cli.{module}"), function)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_and_knows_the_commands(shell: str) -> None:
    code = "from everturn.cli import main; main()"
    script = python(code, "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0, script.stderr
    assert "_EVERTURN_COMPLETE" in script.stdout
    asked = {"_EVERTURN_COMPLETE": f"complete_{shell}", "COMP_WORDS": "everturn s", "COMP_CWORD": "1"}
    offered = python(code, **asked, _TYPER_COMPLETE_ARGS="everturn s", _TYPER_COMPLETE_FISH_ACTION="get-args")
    words = set(re.findall(r"[\w-]+", offered.stdout))
    assert {name for name in COMMANDS if name.startswith("s")} <= words, offered.stderr


def test_docs_says_where_they_are(run: Run) -> None:
    said = run("docs")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert f"documentation:   {project['Documentation']}" in said.lines
    assert f"source:          {project['Repository']}" in said.lines
    assert run("docs", "contract").out == f"{project['Documentation']}/contract.html\n"


POINTED = re.compile(r"everturn docs ([\w/-]+)")
ELSEWHERE = re.compile(r"\b(?:docs|examples|tools|tests|benchmarks|requirements)/[\w.-]+|\bmake [a-z-]+`|\w+\.md\b")


def messages() -> Iterator[tuple[Path, str]]:
    """Every text in the package that a user may meet: all but docstrings, except those that are help of a command."""
    for file in sorted((ROOT / "src/everturn").rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        helps = file.parent.name == "cli"
        documented = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and ast.get_docstring(node)]
        kept = [node for node in documented if helps and isinstance(node, ast.FunctionDef)]
        unseen = {id(node.body[0].value) for node in documented if node not in kept}  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unseen:
                yield file, node.value


def test_no_message_points_at_a_file_that_is_not_installed() -> None:
    found = [
        (file.name, match[0])
        for file, text in messages()
        for match in ELSEWHERE.finditer(text)
        if "docs_page" not in file.name and not match[0].startswith("tests/snapshots")  # of the user's own project
    ]
    assert found == []


def test_messages_point_at_pages_that_there_are() -> None:
    named = {page for _, text in messages() for page in POINTED.findall(text)}
    assert len(named) > 3
    assert [page for page in named if not (ROOT / "docs" / f"{page}.md").exists()] == []
