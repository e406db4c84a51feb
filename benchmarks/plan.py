"""Input and output of a measurement: RunPlan and TableRow. Runs nothing itself."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.stats import Spread


@dataclass(frozen=True)
class RunPlan:
    """The amount of work of a run, and the directory of its files."""

    directory: Path
    quick: bool = False
    peers: bool = True

    def pick(self, full: int, quick: int) -> int:
        """The full amount of work, or the quick one."""
        return quick if self.quick else full

    def path(self, name: str) -> Path:
        """A fresh directory for one contender's files."""
        path = self.directory / name
        path.mkdir(parents=True)
        return path


@dataclass(frozen=True)
class Bar:
    """The figure DESIGN section 6 asks for."""

    sense: Literal["<=", ">="]
    limit: float
    wanted: bool = False  # a wish written beside a bar: reported, but missing it is not a miss

    def holds(self, figure: float) -> bool:
        """Whether a figure meets the bar."""
        return figure <= self.limit if self.sense == "<=" else figure >= self.limit


@dataclass(frozen=True)
class Plotted:
    """The figures of a row that a picture shows: seconds of each contender at one length of the history."""

    chart: str
    length: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class TableRow:
    """One line of the table. `figure` is what the bar is about: a ratio, or a quantity in `unit`."""

    name: str
    ours: str
    baseline: str
    figure: Spread | None = None
    unit: str = "x"
    bar: Bar | None = None
    note: str = ""
    plotted: Plotted | None = None

    @property
    def reached(self) -> bool | None:
        """Judged on the median. None when the row has no bar or no figure."""
        if self.bar is None or self.figure is None:
            return None
        return self.bar.holds(self.figure.median)


Measurement = Callable[[RunPlan], Iterator[TableRow]]
"""One kind of work. Yields its rows as they are ready, so that a failure later does not lose them."""


def duration(seconds: float) -> str:
    """A duration for the table, at a readable scale."""
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} us"
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"
