"""Leases and effects beside an append on the same backend: each request, and an append that names a lease."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import everturn
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave
from benchmarks.stats import ratio
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import turns as make_turns
from everturn.testing.servers import postgres_server, valkey_server

BARS = {"append that names a lease": 1.05, "take": 1.5, "release": 1.5, "begin an effect": 1.5, "finish an effect": 1.5}
REPEATS = 10


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: an append of two messages by the same store, in the same round."""
    yield from _rows(plan, "SQLite", url(plan.path("leases")))
    with valkey_server() as server:
        yield from _rows(plan, "Valkey", server.url)
    with postgres_server() as server:
        yield from _rows(plan, "PostgreSQL", server.url)


def _rows(plan: RunPlan, name: str, at: str) -> Iterator[TableRow]:
    with everturn.open(at) as store:
        figures = interleave({name: _round(store)}, rounds=plan.pick(60, 12))[name]
    plain = [figure["append"] for figure in figures]
    for work, limit in BARS.items():
        ours = [figure[work] for figure in figures]
        yield TableRow(
            f"{name}: {work}",
            duration(statistics.median(ours)),
            f"{duration(statistics.median(plain))} an append",
            ratio(ours, plain),
            bar=Bar("<=", limit),
        )


def _round(store: everturn.MemoryStore) -> Callable[[], dict[str, float]]:
    """A round of ten times each request, in turn: the median seconds of each."""
    (turn,) = (as_messages(turn) for turn in make_turns(1))
    numbers = itertools.count()
    standing = store.lease("named", seconds=86_400)
    store.add_messages("taken", turn)

    def one_round() -> dict[str, float]:
        laps = []
        for _ in range(REPEATS):
            key = f"effect-{next(numbers)}"
            times = [time.perf_counter()]
            store.add_messages("named", turn)
            times.append(time.perf_counter())
            store.add_messages("named", turn, lease=standing)
            times.append(time.perf_counter())
            lease = store.lease("taken")
            times.append(time.perf_counter())
            lease.release()
            times.append(time.perf_counter())
            store.begin_effect("effects", key, {"amount": 20})
            times.append(time.perf_counter())
            store.finish_effect("effects", key, {"receipt": key})
            times.append(time.perf_counter())
            laps.append([after - before for before, after in itertools.pairwise(times)])
        medians = [statistics.median(column) for column in zip(*laps, strict=True)]
        return dict(zip(("append", *BARS), medians, strict=True))

    return one_round
