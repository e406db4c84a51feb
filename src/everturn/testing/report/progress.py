"""Shows progress while clauses run: a bar on a terminal, a letter for each clause elsewhere."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from everturn.testing.report.terminal_report import STYLES
from everturn.testing.report.wording import MEANING
from everturn.testing.results import ClauseResult, Status
from everturn.ui.html import named

_MARKS: dict[Status, str] = {"holds": ".", "broken": "B", "untested": "u", "known": "k", "not_offered": "-"}


class Progress:
    """Follows a run: `begin` and `end` for each clause, inside a `with` block.

    On a terminal, a bar that is removed at the end, and failures as soon as they are known. Elsewhere, a growing line
    of letters for each layer, in the order of the clauses.
    """

    def __init__(self, console: Console, clauses: Sequence[str]) -> None:
        """`clauses` are the ids of the clauses to run, in their order."""
        self._console = console
        self._layer = ""
        self._awaited = deque(clauses)
        self._ended: defaultdict[str, list[ClauseResult]] = defaultdict(list)
        self._bar: Bar | None = None
        if console.is_terminal:
            columns = (
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[id]}"),
            )
            self._bar = Bar(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=len(clauses), id="")

    def begin(self, clause_id: str) -> None:
        """Show that a clause begins."""
        if self._bar is not None:
            self._bar.update(self._task, id=named(clause_id))

    def end(self, result: ClauseResult) -> None:
        """Show the result of a clause."""
        if self._bar is None:
            self._ended[result.id].append(result)
            while self._awaited and self._ended[self._awaited[0]]:
                self._print_mark(self._ended[self._awaited.popleft()].pop())
            return
        self._bar.advance(self._task)
        if result.status in {"broken", "untested"}:
            line = Text(f"{MEANING[result.status]}: ", style=STYLES[result.status])
            self._bar.console.print(line.append(named(result.id), style="default"))

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        for clause_id in self._awaited:  # after a run that was stopped: clauses that ended out of order
            if self._ended[clause_id]:
                self._print_mark(self._ended[clause_id].pop())
        self._end_line()

    def _print_mark(self, result: ClauseResult) -> None:
        if result.layer != self._layer:
            self._end_line()
            self._console.print(Text(f"{result.layer:<12} "), end="", soft_wrap=True)
            self._layer = result.layer
        self._console.print(Text(_MARKS[result.status]), end="", soft_wrap=True)

    def _end_line(self) -> None:
        if self._bar is None and self._layer:
            self._console.print()
            self._layer = ""
