"""The command: choose the measurements, run them, print the table, write the JSON."""

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, report
from benchmarks.plan import Measurement, RunPlan, TableRow
from benchmarks.rounds import progress

MEASUREMENTS = (
    *(
        "append",
        "group_commit",
        "processes",
        "load",
        "latest",
        "context",
        "peers",
        "growth",
        "leases",
        "ranges",
        "size",
        "imports",
    ),
    *("redis", "postgres", "dynamodb", "adapters"),
)
TOLERABLE = 0.3  # processors that others may use before the figures are in doubt
RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    """Return 1 when a measurement broke or others kept the machine busy: a missed bar is a finding, not a failure."""
    arguments = _arguments()
    names = [name for name in arguments.only or MEASUREMENTS if arguments.peers or name not in ("peers", "adapters")]
    rows: list[TableRow] = []
    broken = []
    with tempfile.TemporaryDirectory(prefix="everturn-bench-", dir=arguments.directory) as scratch:
        plan = RunPlan(Path(scratch), quick=arguments.quick, peers=arguments.peers)
        facts = machine.facts(plan.directory)
        other_work = machine.OtherWork()
        for name in names:
            start = time.perf_counter()
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                for row in _measurement(name)(plan):
                    rows.append(row)
                    progress(report.line(row))
            except Exception as exc:  # noqa: BLE001  one broken measurement must not lose the others
                broken.append(name)
                rows.append(TableRow(name, "", "", note=f"broken: {type(exc).__name__}: {exc}"))
            progress(f"{time.perf_counter() - start:.1f} s")
    facts["processors busy with other work"] = others = other_work.processors()
    if (others or 0) > TOLERABLE and not arguments.any_load:
        print(
            f"Other programs kept {others} processors busy meanwhile: a commit then waits for a processor and not for"
        )
        print("the disk, which makes all appends look alike. So there is no table. Run it again on a quiet machine, or")
        print("with --any-load, for figures that nobody should quote.")
        return 1
    print(", ".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    print(report.table(rows))
    report.write_json(arguments.json, rows, facts, machine.versions())
    return 1 if broken else 0


def _measurement(name: str) -> Measurement:
    """Import a measurement only when it runs: a broken or absent part of everturn must not stop the rest."""
    measure: Measurement = importlib.import_module(f"benchmarks.rows.{name}").measure
    return measure


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter histories: under a minute")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave other stores out")
    parser.add_argument("--any-load", action="store_true", help="print the table even if other programs were busy")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--directory", type=Path, help="where the databases go: the disk that is measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
