"""What `import everturn` costs a program, and whether it drags a database driver in."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.plan import Bar, Plan, Row, duration
from benchmarks.rounds import interleave
from benchmarks.stats import excess, spread

DRIVERS = ("apsw", "sqlite3", "redis", "valkey", "psycopg", "psycopg_pool", "asyncpg", "aiosqlite")


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: the same interpreter with `pass` for a program.

    Whole processes are timed, from start to exit, with the byte code compiled already.
    """
    figures = interleave(
        {program: _process(program) for program in ("import everturn", "pass")}, rounds=plan.pick(25, 10)
    )
    ours, bare = figures["import everturn"], figures["pass"]
    over = excess([seconds * 1e3 for seconds in ours], [seconds * 1e3 for seconds in bare])
    yield Row(
        "import everturn, over bare Python",
        duration(statistics.median(ours)),
        f"{duration(statistics.median(bare))} bare Python",
        over,
        unit=" ms",
        bar=Bar("<=", 60.0),
    )
    loaded = [name for name in _modules_after("import everturn") if name in DRIVERS]
    yield Row(
        "drivers imported by import everturn",
        ", ".join(loaded) or "none",
        "none",
        spread([len(loaded)]),
        unit="",
        bar=Bar("<=", 0),
    )


def _process(program: str) -> Callable[[], float]:
    def one_round() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=os.environ)
        return time.perf_counter() - start

    return one_round


def _modules_after(program: str) -> list[str]:
    listing = f"{program}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()
