"""The HTML report: one file that asks nobody for anything, with every violation drawn and every text escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from everturn.testing.report import svg as timeline
from everturn.testing.report import write_html
from everturn.testing.report.html import page
from everturn.testing.results import Violation
from tests.kit.report_tools import HISTORIES, HOSTILE, clause, everything, report, violations

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Reading(HTMLParser):
    """Elements as a browser would find them; raises where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def reading() -> Reading:
    return Reading(page(everything()))


def test_it_asks_nobody_for_anything(reading: Reading) -> None:
    names = {name for name, _ in reading.elements}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "form", "base"})
    attributes = {key for _, given in reading.elements for key in given}
    assert attributes.isdisjoint({"src", "href", "style", "action"})
    assert not [key for key in attributes if key.startswith("on")]
    assert not re.search(r"https?://|url\(|@import", page(everything()))
    policies = [given["content"] for name, given in reading.elements if "http-equiv" in given and name == "meta"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"]


def test_hostile_text_is_text(reading: Reading) -> None:
    assert reading.words.count("<script>alert(1)</script>") >= 8
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", page(everything()))
    assert "U+202E" in reading.words


def test_it_tells_what_a_reader_needs_to_act() -> None:
    words = Reading(page(report(clause("broken", 1, violations()["lost"], detail="1 of 240 turns")))).words
    for part in (
        "my.store:factory",
        "1 clause offered: 1 broken.",
        "seed 42",
        "sequential.broken-1",
        "What is promised.",
        "1 of 240 turns",
        "a, b: acknowledged, and a later read does not have it.",
        "r  read: saw nothing",
        "What it would have caused.",
        "What to change.",
        "everturn check x",
    ):
        assert part in words


def test_it_is_written_as_one_file(tmp_path: Path) -> None:
    write_html(everything(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == page(everything())
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_it_is_light_and_dark() -> None:
    assert "prefers-color-scheme: dark" in page(report())
    used = set(re.findall(r"var\((--\w+)\)", page(report())))
    for palette in re.findall(r":root \{(.*?)\}", page(report()), re.DOTALL):
        assert used <= set(re.findall(r"(--\w+):", palette))


# --- the drawing -------------------------------------------------------------------------------------------------


def classes(element: ET.Element) -> set[str]:
    return set(element.get("class", "").split())


def drawing(violation: Violation) -> ET.Element:
    drawn = timeline.drawn(violation)
    assert drawn is not None
    return ET.fromstring(str(drawn))


@pytest.mark.parametrize("name", HISTORIES)
def test_each_call_is_a_bar_in_the_lane_of_its_worker(name: str) -> None:
    violation = violations()[name]
    svg = drawing(violation)
    invokes = [event for event in violation.events if event.type == "invoke"]
    bars = [element for element in svg.iter("rect") if "bar" in classes(element)]
    assert len(bars) == len(invokes)
    heights: dict[str, set[str | None]] = {}
    for event, bar in zip(invokes, bars, strict=True):
        heights.setdefault(event.worker, set()).add(bar.get("y"))
    assert all(len(places) == 1 for places in heights.values())
    assert len({place for places in heights.values() for place in places}) == len(heights)
    lanes = [element.text for element in svg.iter("text") if "worker" in classes(element)]
    assert lanes == list(dict.fromkeys(event.worker for event in invokes))


@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_is_drawn_outside_the_picture(name: str) -> None:
    svg = drawing(violations()[name])
    width, height = (int(part) for part in svg.get("viewBox", "").split()[2:])
    for box in svg.iter("rect"):
        x, y, wide, high = (int(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= width
        assert y >= 0
        assert y + high <= height


@pytest.mark.parametrize("name", HISTORIES)
def test_what_it_is_about_and_the_read_that_shows_it_are_marked(name: str) -> None:
    groups = [element for element in drawing(violations()[name]).iter("g") if "call" in classes(element)]
    assert any("about" in classes(group) for group in groups)
    (shows,) = [group for group in groups if "shows" in classes(group)]
    assert "read" in classes(shows)


def test_a_read_shows_what_it_saw_and_what_it_should_have() -> None:
    def chips(name: str) -> list[tuple[str, str | None]]:
        groups = [group for group in drawing(violations()[name]).iter("g") if "chip" in classes(group)]
        return [(" ".join(sorted(classes(group) - {"chip"})), group.findall("text")[0].text) for group in groups]

    assert chips("lost") == [("missing", "a"), ("missing", "b")]
    assert chips("duplicate") == [("about seen", value) for value in "abab"]
    assert chips("torn") == [("about seen", "a"), ("seen", "x"), ("about seen", "b"), ("seen", "y")]


def test_a_call_that_never_ended_reaches_to_the_end() -> None:
    svg = drawing(violations()["killed"])
    bars = [element for element in svg.iter("rect") if "bar" in classes(element)]
    ends = [int(bar.get("x", "")) + int(bar.get("width", "")) for bar in bars]
    assert ends[0] == max(ends)


def test_a_violation_without_events_has_no_picture() -> None:
    assert timeline.drawn(Violation("differs", "a story")) is None


def test_hostile_and_long_text_in_a_picture_is_cut_and_escaped() -> None:
    found = everything().clauses[1].violations[1]
    svg = drawing(found)
    assert max(len(element.text or "") for element in svg.iter("text")) <= 60
    assert HOSTILE not in str(timeline.drawn(found))
