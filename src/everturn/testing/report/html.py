"""The report as one HTML file: no script, nothing loaded from elsewhere, every text escaped. Light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from textwrap import dedent

from everturn.testing.report import svg
from everturn.testing.report.wording import MEANING, WORST_FIRST, by_cause, by_layer, facts, outcome
from everturn.testing.results import ClauseResult, RunReport, Violation
from everturn.ui.html import Html, Node, join, named, shown, tag

# The file itself forbids loading anything, wherever it is opened.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def write_html(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Write the report as one HTML file, replacing it. Raises OSError."""
    Path(path).write_text(page(report), "utf-8")


def page(report: RunReport) -> str:
    """The whole page."""
    sheet = files(__package__).joinpath("html.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"everturn check: {named(report.target)}"),
        # Ours, not text: a sheet must not be escaped.
        tag("style", Html(sheet + svg.style())),
    )
    body = tag("body", tag("main", *_parts(report)))
    return "<!doctype html>\n" + tag("html", head, body, lang="en")


def _parts(report: RunReport) -> Iterator[Node]:
    good = report.exit_code == 0
    yield tag("h1", shown(report.target))
    yield tag("p", outcome(report), class_="outcome good" if good else "outcome bad")
    yield tag("p", shown(facts(report)), class_="facts")
    yield (
        tag("ul", *(tag("li", shown(text)) for text in report.complaints), class_="bad") if report.complaints else None
    )
    yield tag("ul", *(tag("li", shown(text)) for text in report.hints)) if report.hints else None
    yield _table(report)
    for clause, others in by_cause(report):
        yield _failure(clause, others)
    yield tag("h2", "All clauses")
    for layer, clauses in by_layer(report).items():
        yield tag("details", tag("summary", f"{layer}: {_tally(clauses)}"), _list(clauses))


def _table(report: RunReport) -> Html:
    status_heads = [tag("th", MEANING[status], scope="col", class_="number") for status in WORST_FIRST]
    rows = []
    for layer, clauses in by_layer(report).items():
        counts = [(status, sum(clause.status == status for clause in clauses)) for status in WORST_FIRST]
        cells = [tag("td", count or "", class_=f"number {status}") for status, count in counts]
        seconds = f"{sum(clause.seconds for clause in clauses):.1f}"
        rows.append(tag("tr", tag("th", layer, scope="row"), *cells, tag("td", seconds, class_="number")))
    heads = (tag("th", "layer", scope="col"), *status_heads, tag("th", "seconds", scope="col", class_="number"))
    return tag("div", tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)), class_="wide")


def _failure(clause: ClauseResult, others: list[ClauseResult]) -> Html:
    return tag(
        "section",
        tag("h2", tag("span", MEANING[clause.status], class_=f"status {clause.status}"), " ", shown(clause.id)),
        tag("p", shown(clause.promise), class_="promise"),
        tag("p", shown(clause.detail)) if clause.detail else None,
        *(_violation(violation) for violation in clause.violations),
        tag(
            "dl",
            _fact("Broken or untested for the same cause", shown(", ".join(one.id for one in others)))
            if others
            else None,
            _fact("The incident it would have caused", shown(clause.incident)) if clause.incident else None,
            _fact("The usual remedy", shown(clause.remedy)) if clause.remedy else None,
            _fact("Replay", tag("code", shown(clause.replay))) if clause.replay else None,
        ),
        id=f"clause-{clause.id}",
    )


def _violation(violation: Violation) -> Html:
    headline, _, lines = violation.story.partition("\n")
    picture = svg.drawn(violation)
    return tag(
        "figure",
        tag("figcaption", tag("strong", violation.kind.replace("_", "-")), " ", shown(headline)),
        tag("div", picture, class_="wide", tabindex=0, role="group", aria_label="timeline") if picture else None,
        tag("pre", shown(dedent(lines))) if lines else None,
    )


def _fact(name: str, value: Node) -> Html:
    return join([tag("dt", name), tag("dd", value)])


def _list(clauses: list[ClauseResult]) -> Html:
    rows = (
        tag(
            "tr",
            tag("td", MEANING[clause.status], class_=f"status {clause.status}"),
            tag("th", shown(clause.id), scope="row"),
            tag(
                "td", shown(clause.promise), tag("div", shown(clause.detail), class_="facts") if clause.detail else None
            ),
        )
        for clause in clauses
    )
    return tag("div", tag("table", tag("tbody", *rows)), class_="wide")


def _tally(clauses: list[ClauseResult]) -> str:
    counts = ((status, sum(clause.status == status for clause in clauses)) for status in WORST_FIRST)
    return ", ".join(f"{count} {MEANING[status]}" for status, count in counts if count)
