"""A program of its own: draws the charts of the README, everturn beside the bare driver and the peers on SQLite.

python -m benchmarks.charts docs/images      # writes bench-append.svg, bench-disk.svg, bench-writers.svg
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.contenders.on_sqlite import PEERS
from everturn.bench import measuring
from everturn.bench.contenders import BARE, EVERTURN
from everturn.bench.plots import drawn


def main() -> None:
    """Measure, and write a picture for each chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.charts", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--quick", action="store_true", help="shorter histories, fewer writers")
    parser.add_argument("--directory", type=Path, help="where the databases go: the disk that is measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everturn-bench-", dir=arguments.directory) as scratch:

        def place(name: str) -> Path:
            made = Path(scratch, name)
            made.mkdir()
            return made

        entrants = (EVERTURN, BARE, *PEERS)
        for chart in measuring.measure(
            entrants, place, quick=arguments.quick, tell=lambda text: print(text, file=sys.stderr)
        ):
            (arguments.folder / f"bench-{chart.name}.svg").write_text(drawn(chart), "utf-8")


if __name__ == "__main__":
    main()
