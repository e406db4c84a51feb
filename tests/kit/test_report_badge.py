"""The badge, the summary for a CI job, and the baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everturn.testing.report import append_summary, write_badge
from everturn.testing.report.badge import badge
from everturn.testing.report.summary import summary
from everturn.testing.results import Status, Violation
from tests.kit.report_tools import HOSTILE, clause, everything, report


@pytest.mark.parametrize(
    ("statuses", "complaints", "color", "message"),
    [
        (("holds", "holds", "not_offered"), (), "brightgreen", "2 hold, 1 not offered"),
        (("holds", "broken", "untested", "known"), (), "red", "1 holds, 1 broken, 1 untested, 1 known"),
        (("holds", "untested"), (), "yellow", "1 holds, 1 untested"),
        (("holds",), ("the ledger is wrong",), "red", "1 holds"),
        (("not_offered",), (), "lightgrey", "1 not offered"),
        ((), (), "lightgrey", "nothing was run"),
    ],
)
def test_a_badge_shows_breakage_by_its_colour_and_coverage_beside_it(
    statuses: tuple[Status, ...], complaints: tuple[str, ...], color: str, message: str
) -> None:
    clauses = (clause(status, number) for number, status in enumerate(statuses))
    made = badge(report(*clauses, complaints=complaints))
    assert (made.color, made.message) == (color, message)


def test_the_file_of_a_badge_is_what_shields_reads(tmp_path: Path) -> None:
    write_badge(report(clause("holds")), tmp_path / "badge.json")
    assert json.loads((tmp_path / "badge.json").read_text()) == {
        "schemaVersion": 1,
        "label": "durability contract 1",
        "message": "1 holds",
        "color": "brightgreen",
    }


def test_a_summary_has_the_table_the_stories_and_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_summary(everything(), path)
    text = path.read_text()
    assert text.startswith("before\n## ")
    assert "| layer | broken | untested | known | holds | not offered |" in text
    assert "acknowledged, and a later read does not have it" in text
    assert "The usual remedy: What to change." in text
    assert "everturn check x" in text


def test_text_of_a_store_is_no_markup_in_a_summary() -> None:
    text = summary(everything())
    outside = "".join(text.split("```")[::2])
    assert "<script" not in outside.replace("\\<", "")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[U+202E]" in text


def test_a_story_with_fences_stays_in_its_block() -> None:
    text = summary(report(clause("broken", 1, Violation("lost", "```\n# out\n```"))))
    assert "````text\n```\n# out\n```\n````" in text


def test_a_summary_is_never_too_long_for_github() -> None:
    many = (clause("broken", number, Violation("lost", f"{number} {HOSTILE * 500}")) for number in range(200))
    text = summary(report(*many))
    assert len(text.encode()) < 2**20 / 4
    assert "more causes" in text
    assert text.count("<details>") == text.count("</details>")
