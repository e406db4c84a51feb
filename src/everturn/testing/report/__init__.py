"""Reports of the contract kit: on a terminal while it runs and afterwards, as JSON, and as one HTML page.

progress.py  the terminal, while clauses run
terminal_report.py  the terminal, afterwards
files.py     JSON, written and read
badge.py     the JSON of a badge
summary.py   Markdown, for the summary of a CI job
html.py      HTML: one file, nothing loaded from elsewhere
svg.py       a violation as a drawing, for the page and for the inspector
wording.py   sentences that terminal and page share
"""

from typing import TYPE_CHECKING, Any

from everturn.testing.report.badge import write_badge
from everturn.testing.report.files import BadReport, read_json, write_json
from everturn.testing.report.html import write_html
from everturn.testing.report.summary import append_summary

if TYPE_CHECKING:
    from everturn.testing.report.progress import Progress
    from everturn.testing.report.terminal_report import terminal

__all__ = [
    "BadReport",
    "Progress",
    "append_summary",
    "read_json",
    "terminal",
    "write_badge",
    "write_html",
    "write_json",
]


def __getattr__(name: str) -> Any:
    """Import what draws on a terminal when it is asked for: it needs rich, which the extra `cli` brings."""
    if name == "Progress":
        from everturn.testing.report.progress import Progress

        return Progress
    if name == "terminal":
        from everturn.testing.report.terminal_report import terminal

        return terminal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
