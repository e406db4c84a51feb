"""The command `bench`: measures the user's own machine and URL."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from everturn.cli.arguments import as_url, file_of
from everturn.cli.output import console, print_json
from everturn.errors import Unsupported

if TYPE_CHECKING:
    from everturn.bench.contenders import Place
    from everturn.bench.measuring import Chart


def bench(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The store to measure; default: a file in this directory.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer messages and writers: about half a minute.")] = False,
    plots: Annotated[Path | None, typer.Option(help="A directory for the plots (SVG).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value per line, one for each chart.")] = False,
) -> None:
    """Measure everturn and the bare driver on this machine.

    Measures the time of an append as the history grows, the turns per second of several processes, and the bytes on
    disk: of everturn, and of the bare driver beside it. Your data is not touched: on SQLite the files go to a new
    directory beside yours, on a server the sessions have ids of their own. Both are removed. Figures are medians;
    close other programs first.

    \b
    Examples:
      everturn bench
      everturn bench sqlite:////data/memory.db --plots plots/
      everturn bench redis://localhost --quick --json
    """
    from everturn.bench import measuring
    from everturn.bench.plots import drawn

    url = as_url(url or "everturn-bench.db")
    backend = "sqlite" if url.startswith("sqlite") else "redis" if url.startswith("redis") else "postgres"
    if not url.startswith(("sqlite:///", "redis://", "postgres")):
        raise Unsupported("bench measures sqlite:///, redis:// and postgresql://")
    with _places(url) as place:
        charts = measuring.measure(measuring.contenders(backend), place, quick=quick, tell=_tell)
        for chart in charts:
            if plots is not None and (picture := drawn(chart)):
                plots.mkdir(parents=True, exist_ok=True)
                (plots / f"{chart.name}.svg").write_text(picture, "utf-8")
            if json:
                print_json([chart])
            else:
                _print(chart)
    if plots is not None:
        sys.stderr.write(f"plots written to {plots}\n")


@contextmanager
def _places(url: str) -> Iterator[Callable[[str], Place]]:
    """A new place for each contender."""
    file = file_of(url)
    if file is None:
        yield lambda _name: url
        return
    folder = Path(tempfile.mkdtemp(prefix="everturn-bench-", dir=file.absolute().parent))

    def place(name: str) -> Path:
        made = folder / name
        made.mkdir()
        return made

    try:
        yield place
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")


def _print(chart: Chart) -> None:
    from everturn.bench.plots import value

    xs = sorted({point.x for curve in chart.curves for point in curve.points})
    table = Table(
        box=None, pad_edge=False, header_style="bold", title=f"{chart.title}, by {chart.x}", title_justify="left"
    )
    table.add_column("")
    for x in xs:
        table.add_column(f"{x:,}", justify="right")
    table.add_column("")
    for curve in chart.curves:
        figures = {point.x: value(point.y, chart.y) for point in curve.points}
        table.add_row(curve.contender, *(figures.get(x, "-") for x in xs), curve.note)
    screen = console()
    screen.print(table)
    screen.print()
