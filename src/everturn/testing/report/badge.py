"""The report as a badge: the JSON of a shields.io endpoint. Breakage decides the colour, coverage stands beside it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from everturn.testing.report.wording import counted
from everturn.testing.results import RunReport, count_statuses

LABEL = "durability contract"


class Badge(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that https://shields.io/endpoint reads."""

    label: str
    message: str
    color: str
    schema_version: int = 1


def badge(report: RunReport) -> Badge:
    """Make the badge of a report: red if a clause is broken or the run has complaints, yellow if one is untested, grey
    if nothing holds, else green. Clauses that are not offered change no colour: they say how much was looked at."""
    counts = count_statuses(report.clauses)
    if counts["broken"] or report.complaints:
        color = "red"
    elif counts["untested"]:
        color = "yellow"
    else:
        color = "brightgreen" if counts["holds"] else "lightgrey"
    message = counted(report, ("holds", "broken", "untested", "known", "not_offered")) or "nothing was run"
    return Badge(f"{LABEL} {report.contract_version}", message, color)


def write_badge(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Write the badge as JSON, replacing the file. Raises OSError."""
    Path(path).write_bytes(msgspec.json.encode(badge(report)) + b"\n")
