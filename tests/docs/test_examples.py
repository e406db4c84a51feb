"""What the READMEs of the examples say of them is so. The examples themselves run as tests: see testpaths."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIVE_MINUTES = ROOT / "examples" / "contract_in_five_minutes"


def test_the_contract_in_five_minutes_has_23_cases_in_three_layers() -> None:
    text = (FIVE_MINUTES / "README.md").read_text("utf-8")
    told = {name: int(cases) for name, cases in re.findall(r"^\| `(\w+\.py)` \|.*\| (\d+) \|$", text, re.MULTILINE)}
    found = {path.name: path.read_text("utf-8").count("\ndef test_") for path in FIVE_MINUTES.glob("test_*.py")}
    assert told == found
    assert len(found) == 3
    assert sum(found.values()) == 23
    assert "46 passed" in text  # each on a blocking store and on an awaited one


def test_links_from_examples_lead_somewhere() -> None:
    pages = sorted((ROOT / "examples").glob("*/README.md"))
    assert pages
    for page in pages:
        targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
        assert [target for target in targets if not (page.parent / target).exists()] == [], page


def test_the_page_about_the_chat_endpoint_shows_the_example() -> None:
    page = (ROOT / "docs" / "start" / "chat-endpoint.md").read_text("utf-8")
    assert (ROOT / "examples" / "chat" / "app.py").read_text("utf-8") in page


def test_the_page_about_the_agent_shows_the_example() -> None:
    folder = ROOT / "examples" / "agent"
    assert (folder / "agent.py").read_text("utf-8") in (folder / "README.md").read_text("utf-8")
