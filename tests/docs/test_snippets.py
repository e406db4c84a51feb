"""Every snippet in the README and the docs is run: what we tell people to paste must work when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import everturn
from everturn import ChatMessage
from tests.docs.snippet import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page: Path, language: str) -> list[str]:
    return [code for found, code in SNIPPET.findall(page.read_text("utf-8")) if found == language]


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page, "python")], ids=lambda page: page.name)
def test_the_python_on_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run("\n".join(snippets(page, "python")), tmp_path)


START = [ROOT / "docs" / "start" / f"{name}.md" for name in ("install", "first-memory", "chat-endpoint")]


@pytest.mark.parametrize("pages", [START, pytest.param(PAGES, marks=pytest.mark.deep)], ids=["start", "all"])
def test_pages_run_one_after_another_in_one_directory(pages: list[Path], tmp_path: Path) -> None:
    """A reader pastes one page after another, and what an earlier one has stored is still there."""
    for page in (page for page in pages if snippets(page, "python")):
        run("\n".join(snippets(page, "python")), tmp_path)


def test_the_readme_shows_what_it_says_it_shows(tmp_path: Path) -> None:
    first = snippets(ROOT / "README.md", "python")[0]
    assert run(first, tmp_path) == "['My order is 1234.', 'Thanks!']\n"
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page, "sql")], ids=lambda page: page.name)
def test_the_sql_on_a_page_runs_on_a_store(page: Path, tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        store.add_messages("customer-42", [ChatMessage("user", "hi")])
    db = apsw.Connection(str(tmp_path / "memory.db"))
    for code in snippets(page, "sql"):
        for statement in filter(str.strip, code.split(";\n")):
            assert db.execute(statement).fetchall(), statement
    db.close()


SHELL = [page for page in PAGES if any("everturn " in code for code in snippets(page, "sh"))]


@pytest.mark.parametrize("page", SHELL, ids=lambda page: page.name)
def test_the_commands_on_a_page_run(page: Path, tmp_path: Path) -> None:
    """In a directory with a store in it. What is not ours, and what does not end, stands in another kind of block."""
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        store.save_context("customer-42", "My order is 1234.", "Thanks!")
        store.save_snapshot("customer-42", "before the new prompt")
        store.save_context("customer-42", "Where is it?", "What is your order number?")
    command = Path(sys.executable).with_name("everturn")
    for code in snippets(page, "sh"):
        if "everturn " not in code:
            continue  # make try, make test: what runs this
        script = f'set -e\neverturn() {{ {command} "$@"; }}\n{code}'
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_our_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_decisions_stay_short() -> None:
    pages = (ROOT / "docs" / "decisions").glob("*.md")
    assert [page.name for page in pages if len(page.read_text("utf-8").splitlines()) > 40] == []
