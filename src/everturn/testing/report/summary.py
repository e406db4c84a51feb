"""The report as Markdown, for the step summary of a job on GitHub. A file may hold summaries of several runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from everturn.testing.report.wording import MEANING, WORST_FIRST, by_cause, by_layer, facts, outcome
from everturn.testing.results import ClauseResult, RunReport
from everturn.ui.html import named

_STORIES = 2  # violations of a clause that are told here; --html and --json have all
_LONGEST = 100_000  # characters; GitHub drops a step's summary of more than 1 MiB
_LONGEST_STORY = 4_000


def append_summary(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Append the summary to a file, which may not be there yet. Raises OSError."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(summary(report))


def summary(report: RunReport) -> str:
    """Write the summary: the outcome, a table by layer, a section for each cause. Text of a store is never markup."""
    parts = ["\n".join(_head(report))]
    causes = by_cause(report)
    for place, (clause, others) in enumerate(causes):
        part = "\n".join(_cause(clause, others))
        if sum(map(len, parts)) + len(part) > _LONGEST:
            parts.append(f"... and {len(causes) - place} more causes; --html and --json have them.\n")
            break
        parts.append(part)
    return "\n".join(parts) + "\n"


def _head(report: RunReport) -> Iterator[str]:
    mark = "✅" if report.exit_code == 0 else "❌"
    yield f"## {mark} Memory contract: {_plain(report.target)}\n"
    yield f"{outcome(report)} {_plain(facts(report))}\n"
    yield from (f"- {_plain(complaint)}" for complaint in report.complaints)
    yield from (f"- {_plain(hint)}" for hint in report.hints)
    yield ""
    shown = [status for status in WORST_FIRST if any(clause.status == status for clause in report.clauses)]
    yield f"| layer | {' | '.join(MEANING[status] for status in shown)} |"
    yield f"|---|{'--:|' * len(shown)}"
    for layer, clauses in by_layer(report).items():
        counts = (sum(clause.status == status for clause in clauses) for status in shown)
        yield f"| {layer} | {' | '.join(str(count) if count else '' for count in counts)} |"
    yield ""


def _cause(clause: ClauseResult, others: Sequence[ClauseResult]) -> Iterator[str]:
    more = f" and {len(others)} more" if others else ""
    yield f"<details><summary><b>{MEANING[clause.status]}</b>: <code>{clause.id}</code>{more}</summary>\n"
    yield f"{_plain(clause.promise)}\n"
    told = [clause.detail, *(violation.story for violation in clause.violations[:_STORIES])]
    yield _block("\n\n".join(filter(None, told)))
    if others:
        yield f"One cause: {', '.join(_code(one.id) for one in (clause, *others))}\n"
    if clause.incident:
        yield f"The incident it would have caused: {_plain(clause.incident)}\n"
    if clause.remedy:
        yield f"The usual remedy: {_plain(clause.remedy)}\n"
    if clause.replay:
        yield _block(clause.replay)
    yield "</details>\n"


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    return re.sub(r"([\\`*_\[\]<>&|#~!])", r"\\\1", named(text))


def _code(text: str) -> str:
    return f"`{named(text).replace('`', chr(39)).replace('|', '/')}`"


def _block(text: str) -> str:
    text = text if len(text) <= _LONGEST_STORY else f"{text[:_LONGEST_STORY]}..."
    lines = [named(line) for line in text.split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in re.findall("`+", line)), default=0))
    return "\n".join([fence + "text", *lines, f"{fence}\n"])
