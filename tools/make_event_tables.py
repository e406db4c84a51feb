"""Writes the tables of docs/reference/events.md and docs/reference/telemetry.md from the code.

python tools/make_event_tables.py            writes them
python tools/make_event_tables.py --check    says whether they are up to date, and changes nothing
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

from everturn.events import EVENTS
from everturn.telemetry import METRICS

DOCS = Path(__file__).parents[1] / "docs" / "reference"


def events_table() -> str:
    """Return the table of events, a line each."""
    lines = ["| event | level | it means | fields | what to do |", "|---|---|---|---|---|"]
    for event in EVENTS:
        fields = ", ".join(f"`{name}`" for name in event.fields)
        level = logging.getLevelName(event.level)
        lines.append(f"| `{event.name}` | {level} | {event.text} | {fields} | {event.advice} |")
    return "\n".join(lines)


def metrics_table() -> str:
    """Return the table of metrics, a line each."""
    lines = ["| metric | kind | unit | it measures | attributes |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in ("db.system.name", *metric.labels))
        lines.append(f"| `{metric.name}` | {metric.kind} | `{metric.unit}` | {metric.text} | {labels} |")
    return "\n".join(lines)


TABLES = {"events": events_table, "telemetry": metrics_table}


def made(name: str, page: str) -> str:
    """Return the page with its table brought up to date."""
    marks = f"<!-- {name}: made by tools/make_event_tables.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
    return pattern.sub(lambda _: f"{marks[0]}\n{TABLES[name]()}\n{marks[1]}", page)


def main() -> int:
    stale = 0
    for name in TABLES:
        path = DOCS / f"{name}.md"
        page = path.read_text("utf-8")
        if made(name, page) != page:
            stale += 1
            if "--check" not in sys.argv:
                path.write_text(made(name, page), "utf-8")
    return stale if "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
