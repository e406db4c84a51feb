"""Reports of the contract kit: clauses that hold, clauses that do not, and every violation as a timeline."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everturn.errors import InvalidInput
from everturn.testing.report import svg
from everturn.testing.report.files import BadReport, read_json
from everturn.testing.report.wording import MEANING, WORST_FIRST, counted
from everturn.testing.results import ClauseResult, RunReport
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.links import link, number_in
from everturn.web.page import inspector_of, page

BROKEN = ("broken", "untested", "known")


async def reports(request: Request) -> Response:
    """The reports that were given to `everturn serve --report`, or one of them."""
    inspector = inspector_of(request)
    number = request.query_params.get("n")
    if number is None and len(inspector.reports) == 1:
        number = "0"
    if number is None:
        links = [tag("li", link("/reports", shown(str(path)), n=n)) for n, path in enumerate(inspector.reports)]
        return page(inspector, "Reports", tag("h1", "Reports"), tag("ul", links))
    index = number_in(number, "n")
    if index >= len(inspector.reports):
        raise InvalidInput(f"is the number of a report, not {index}", path="n")
    try:
        report = read_json(inspector.reports[index])
    except (BadReport, OSError) as error:
        raise InvalidInput(str(error), path="report") from error
    return page(inspector, f"Report on {report.target}", *_report(report))


async def style(_request: Request) -> Response:
    """The style sheet of the timelines, which the kit has."""
    return Response(svg.style(), media_type="text/css")


def _report(report: RunReport) -> list[Node]:
    counts = counted(report, WORST_FIRST)
    verdict = "Every clause that applies holds." if report.exit_code == 0 else "A clause is broken, or was not tested."
    return [
        tag("h1", "Report on ", shown(report.target)),
        tag("p", verdict, class_="facts" if report.exit_code == 0 else "error", role="status"),
        tag("p", f"{counts}. Seed {report.seed}, {report.seconds:.1f} s, {report.started}.", class_="facts"),
        tag("ul", [tag("li", shown(one), class_="error") for one in report.complaints]) if report.complaints else None,
        *(_clause(clause) for clause in report.clauses if clause.status in BROKEN),
        tag(
            "details",
            tag("summary", "All clauses"),
            tag("ul", map(_line, report.clauses)),
        ),
    ]


def _line(clause: ClauseResult) -> Html:
    return tag("li", f"{MEANING[clause.status]}: ", tag("code", clause.id), " ", shown(clause.promise))


def _clause(clause: ClauseResult) -> Html:
    return tag(
        "section",
        tag("h2", tag("code", clause.id), f" · {MEANING[clause.status]}"),
        tag("p", shown(clause.promise)),
        tag("p", shown(clause.detail), class_="error") if clause.detail else None,
        *(
            tag(
                "figure",
                tag("figcaption", tag("strong", one.kind), ": ", tag("span", shown(one.story), class_="said")),
                tag("div", svg.drawn(one), class_="wide"),
            )
            for one in clause.violations
        ),
        tag("p", "Incident: ", shown(clause.incident), class_="facts") if clause.incident else None,
        tag("p", "The usual remedy: ", shown(clause.remedy), class_="facts") if clause.remedy else None,
        tag("p", "Replay: ", tag("code", shown(clause.replay))) if clause.replay else None,
        class_="clause",
    )
