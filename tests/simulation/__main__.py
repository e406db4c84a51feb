"""`python -m tests.simulation`: runs the schedules of many seeds, and tells the first that fails, shrunk.

python -m tests.simulation --seeds 1000 --from 0 --backend redis|sqlite|postgres|all [--kind "late"] [--keep FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.simulation.records import TOLERATED
from tests.simulation.report import report
from tests.simulation.running import BACKENDS, Runner
from tests.simulation.schedules import Schedule, make
from tests.simulation.shrink import shrink


def main() -> int:
    options = _options()
    failed = 0
    for backend in BACKENDS if options.backend == "all" else [options.backend]:
        with Runner(backend) as runner:
            if options.replay:
                failed += _replay(runner, backend, options.replay)
            else:
                failed += _search(runner, backend, options)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--backend", choices=[*BACKENDS, "all"], default="all")
    parser.add_argument("--kind", help="only findings of this kind")
    parser.add_argument("--count", action="store_true", help="go on to the last seed, and count what is found")
    parser.add_argument("--keep", type=Path, help="write the shrunk schedule to this file")
    parser.add_argument("--replay", type=Path, help="run a schedule that was kept")
    return parser.parse_args()


def _search(runner: Runner, backend: str, options: argparse.Namespace) -> int:
    began = time.process_time()
    found: Counter[str] = Counter()
    first: dict[str, int] = {}
    calls = answered = done = 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = runner.run(make(seed, backend))
        calls, answered, done = calls + outcome.calls, answered + outcome.answered, done + 1
        kinds = outcome.kinds() - TOLERATED if options.kind is None else outcome.kinds() & {options.kind}
        for kind in kinds:
            found[kind] += 1
            first.setdefault(kind, seed)
        if kinds and not options.count:
            smallest = shrink(outcome, next(one.kind for one in outcome.findings if one.kind in kinds), runner.run)
            print(report(smallest))
            if options.keep:
                options.keep.write_bytes(msgspec.json.format(msgspec.json.encode(smallest.schedule), indent=1) + b"\n")
            break
    seconds = time.process_time() - began
    rate = f"{seconds:.1f} s of processor time ({60 * done / seconds:.0f} a minute)"
    print(f"{backend}: {done} schedules, {calls} calls, {answered} acknowledged, in {rate}; ", end="")
    print("; ".join(f"{kind}: {found[kind]}, first at seed {first[kind]}" for kind in first) or "nothing found")
    return len(found)


def _replay(runner: Runner, backend: str, path: Path) -> int:
    schedule = msgspec.json.decode(path.read_bytes(), type=Schedule)
    if schedule.backend != backend:
        return 0
    outcome = runner.run(schedule)
    print(report(outcome))
    return len(outcome.findings)


if __name__ == "__main__":
    sys.exit(main())
