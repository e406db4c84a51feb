"""Output of the demo: live bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table
from rich.text import Text

from everturn.cli.demo.verdict import DemoCounts
from everturn.cli.output import console

BAR = 30


class WorkerBars:
    """Progress of the workers of one store: a bar each."""

    def __init__(self, workers: int, turns: int) -> None:
        self.done = [0] * workers
        self.killed: int | None = None
        self._turns = turns

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for number, done in enumerate(self.done):
            full = round(BAR * done / self._turns)
            killed = number == self.killed
            bar = Text("#" * full, style="red" if killed else "green").append("." * (BAR - full), style="dim")
            told = f"{done:>3} acknowledged" + ("   killed with -9" if killed else "")
            table.add_row(f"  worker {number}", bar, Text(told, style="red" if killed else ""))
        return table


@contextmanager
def live(bars: WorkerBars) -> Iterator[None]:
    """Show the bars while the block runs; without a terminal, show nothing until it is over."""
    screen = console()
    if sys.stdout.isatty():
        with Live(bars, console=screen, refresh_per_second=12):
            yield
        return
    yield
    screen.print(bars)


def title(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))


def line(text: str) -> None:
    console().print(text)


def command(words: str, purpose: str) -> None:
    """Print a command to paste, alone on its line: not every shell takes a comment behind it."""
    console().print(f"  {purpose}:")
    console().print(f"    {words}", soft_wrap=True)


def verdicts(counts: dict[str, DemoCounts]) -> None:
    table = Table(box=None, header_style="bold", padding=(0, 2))
    table.add_column("")
    for name in ("acknowledged", "lost", "stored twice", "torn"):
        table.add_column(name, justify="right")
    for store, verdict in counts.items():
        numbers = (verdict.lost, verdict.doubled, verdict.torn)
        cells = [Text(str(number), style="bold red" if number else "green") for number in numbers]
        table.add_row(store, str(verdict.acknowledged), *cells)
    console().print()
    console().print(table)
