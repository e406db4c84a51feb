"""The report on a terminal: a table by layer, then each failure with promise, what happened, incident and replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from everturn.testing.report.wording import MEANING, WORST_FIRST, by_cause, by_layer, facts, not_offered, outcome
from everturn.testing.results import ClauseResult, RunReport, Status
from everturn.ui.html import named

STYLES: dict[Status, str] = {
    "holds": "green",
    "broken": "bold red",
    "untested": "yellow",
    "known": "magenta",
    "not_offered": "dim",
}
_NAMED = 3  # if more clauses need something, only their number is shown
_NEEDS = 12  # the most frequent; the files have all
_STORIES = 3  # violations of a clause that are shown here; the files have all


def terminal(report: RunReport, console: Console) -> None:
    """Print the whole report. Without a terminal it is plain text, and fits into 80 columns either way."""
    plain = not console.is_terminal
    with console.capture() as capture:
        for part in _parts(report, plain=plain):
            console.print(part, width=min(console.width, 80 if plain else 100))
    # In a log, the padding of cells is useless.
    text = capture.get()
    console.file.write("\n".join(line.rstrip() for line in text.split("\n")) if plain else text)


def _parts(report: RunReport, *, plain: bool) -> Iterator[RenderableType]:
    yield Text(named(report.target), style="bold")
    yield Text(named(facts(report)), style="dim")
    yield ""
    yield _table(report, plain=plain)
    for clause, others in by_cause(report):
        yield ""
        yield from _clause(clause, others, plain=plain)
    if missing := not_offered(report):
        yield ""
        yield Text("Not offered; this would let more be tested:", style="bold")
        yield Padding(_needs(missing), (0, 0, 0, 2))
    for hint in report.hints:
        yield ""
        yield Text(named(hint), style="yellow")
    for complaint in report.complaints:
        yield ""
        yield Text(named(complaint), style="bold red")
    yield ""
    yield Text(outcome(report), style="bold green" if report.exit_code == 0 else "bold red")


def _table(report: RunReport, *, plain: bool) -> Table:
    table = Table(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("layer")
    shown = [status for status in WORST_FIRST if any(clause.status == status for clause in report.clauses)]
    for status in shown:
        table.add_column(MEANING[status], justify="right")
    table.add_column("seconds", justify="right")
    for layer, clauses in by_layer(report).items():
        counts = [sum(clause.status == status for clause in clauses) for status in shown]
        cells = [
            Text(str(count) if count else "·" if not plain else "", style=STYLES[status] if count else "dim")
            for status, count in zip(shown, counts, strict=True)
        ]
        table.add_row(layer, *cells, Text(f"{sum(clause.seconds for clause in clauses):.1f}", style="dim"))
    return table


def _needs(missing: Mapping[str, Sequence[ClauseResult]]) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for need, clauses in list(missing.items())[:_NEEDS]:
        shown = Text(named(need))
        if len(clauses) <= _NAMED:
            shown.append(f" ({_ids(clauses)})", style="dim")
        rows.add_row(f"{len(clauses)}", shown)
    if len(missing) > _NEEDS:
        rows.add_row("", f"... and {len(missing) - _NEEDS} needs more; --json has them")
    return rows


def _ids(clauses: Sequence[ClauseResult]) -> str:
    return ", ".join(named(clause.id) for clause in clauses)


def _clause(clause: ClauseResult, others: Sequence[ClauseResult], *, plain: bool) -> Iterator[RenderableType]:
    title = Text(f"{MEANING[clause.status]}: ").append(named(clause.id), style="bold")
    title.stylize(STYLES[clause.status], 0, len(MEANING[clause.status]))
    yield title if plain else Rule(title, align="left", style="dim")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("promise", Text(named(clause.promise)))
    rows.add_row("happened", Group(*_happened(clause)))
    if others:
        rows.add_row("likewise", Text(f"{len(others)} more, of one cause: {_ids(others)}"))
    if clause.incident:
        rows.add_row("incident", Text(named(clause.incident)))
    if clause.remedy:
        rows.add_row("remedy", Text(named(clause.remedy)))
    if clause.replay:
        rows.add_row("replay", Text(named(clause.replay), style="cyan"))
    yield Padding(rows, (0, 0, 0, 2))


def _happened(clause: ClauseResult) -> Iterator[Text]:
    if clause.detail:
        yield Text(named(clause.detail))
    for violation in clause.violations[:_STORIES]:
        headline, *lines = violation.story.split("\n")
        yield Text(f"{violation.kind}: ", style="red").append(named(headline), style="default")
        yield from (Text(named(line.strip())) for line in lines)
    if len(clause.violations) > _STORIES:
        yield Text(f"... and {len(clause.violations) - _STORIES} more; --html and --json have them", style="dim")
