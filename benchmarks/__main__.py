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
LOOK = 5.0  # seconds to watch the machine before anything is measured
RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    """Return 1 when a measurement broke or others kept the machine busy: a missed bar is a finding, not a failure."""
    arguments = _arguments()
    left_out = {*arguments.without, *(() if arguments.peers else ("peers", "adapters"))}
    names = [name for name in arguments.only or MEASUREMENTS if name not in left_out]
    rows: list[TableRow] = []
    broken = []
    begun = time.perf_counter()
    if not arguments.any_load and _is_busy(machine.work_of_others(LOOK), "before anything was measured"):
        return 1
    with tempfile.TemporaryDirectory(prefix="everturn-bench-", dir=arguments.directory) as scratch:
        plan = RunPlan(Path(scratch), quick=arguments.quick, peers=arguments.peers)
        facts = machine.facts(plan.directory)
        other_work, others = machine.OtherWork(), None
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
            others = other_work.processors()  # after each: whoever waits learns at once that it was in vain
            if not arguments.any_load and _is_busy(others, f"meanwhile (until the end of `{name}`)"):
                return 1
    facts["processors busy with other work"] = others
    facts["minutes"] = round((time.perf_counter() - begun) / 60, 1)
    print(", ".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    print(report.table(rows))
    report.write_json(arguments.json, rows, facts, machine.versions(), _told(arguments))
    if broken:
        print(f"Broken: {', '.join(broken)}. The rest is in {arguments.json}.", file=sys.stderr)
    return 1 if broken else 0


def _is_busy(others: float | None, when: str) -> bool:
    """Whether other programs kept the machine too busy for figures. Says so."""
    if others is None or others <= TOLERABLE:
        return False
    print(f"Other programs kept {others} processors busy {when}: a commit then waits for a")
    print("processor and not for the disk, which makes all appends look alike. So there is no table. Run it again on a")
    print("quiet machine, or with --any-load, for figures that nobody should quote.")
    return True


def _told(arguments: argparse.Namespace) -> str:
    """The arguments that say how much was measured, for the page."""
    words = ["--quick"] if arguments.quick else []
    words += [] if arguments.peers else ["--no-peers"]
    words += ["--any-load"] if arguments.any_load else []
    words += ["--without", *arguments.without] if arguments.without else []
    return " ".join([*words, *(["--only", *arguments.only] if arguments.only else [])])


def _measurement(name: str) -> Measurement:
    """Import a measurement only when it runs: a broken or absent part of everturn must not stop the rest."""
    measure: Measurement = importlib.import_module(f"benchmarks.rows.{name}").measure
    return measure


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter histories: under a minute")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument(
        "--without", nargs="+", choices=MEASUREMENTS, default=[], metavar="NAME", help="leave these out"
    )
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave other stores out")
    parser.add_argument("--any-load", action="store_true", help="print the table even if other programs were busy")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--directory", type=Path, help="where the databases go: the disk that is measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
