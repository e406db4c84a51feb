"""The cost of `import everturn` and of `everturn --version`, and whether it imports a database driver."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave
from benchmarks.stats import excess, spread

IMPORT, ALL, BARE = "import everturn", "from everturn import *", "pass"
VERSION = "import sys; sys.argv[1:] = ['--version']; from everturn.cli import main; main()"
DRIVERS = ("apsw", "sqlite3", "redis", "valkey", "psycopg", "psycopg_pool", "asyncpg", "aiosqlite")


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: the same interpreter with `pass` for a program.

    Whole processes are timed, from start to exit, with the byte code compiled already. Because everturn
    loads its names when they are asked for, the import alone says little: the second row asks for all of
    them, which is the most a program can pay before it opens a store.
    """
    figures = interleave(
        {program: _process(program) for program in (IMPORT, ALL, VERSION, BARE)}, rounds=plan.pick(25, 10)
    )
    bare = figures[BARE]
    for name, program, bar in (
        ("import everturn, over bare Python", IMPORT, Bar("<=", 60.0)),
        ("from everturn import *, over bare Python", ALL, Bar("<=", 60.0, wanted=True)),
        ("everturn --version, over bare Python", VERSION, Bar("<=", 150.0)),
    ):
        yield TableRow(
            name,
            duration(statistics.median(figures[program])),
            f"{duration(statistics.median(bare))} bare Python",
            excess([seconds * 1e3 for seconds in figures[program]], [seconds * 1e3 for seconds in bare]),
            unit=" ms",
            bar=bar,
        )
    loaded = [name for name in _modules_after(ALL) if name in DRIVERS]
    yield TableRow(
        "drivers imported by from everturn import *",
        ", ".join(loaded) or "none",
        "none",
        spread([len(loaded)]),
        unit="",
        bar=Bar("<=", 0),
    )


def _process(program: str) -> Callable[[], float]:
    def one_round() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=os.environ, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return one_round


def _modules_after(program: str) -> list[str]:
    listing = f"{program}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()
