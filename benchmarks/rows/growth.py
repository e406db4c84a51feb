"""Cost by length of the history: append, snapshot, rollback and undo at 10 to 1,000,000 messages."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import everturn
from benchmarks.plan import Bar, Plan, Row, duration
from benchmarks.rounds import interleave, progress
from benchmarks.stats import ratio
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import messages
from everturn.bench.workload import turns as make_turns

SHORTEST, LONGEST = 10, 1_000_000
BARS = {"append": 1.2, "snapshot": 1.5, "rollback": 1.5, "undo": 1.5}
BULK = 10_000
REPEATS = 5
WARM_UP = 20_000  # messages: enough to write a WAL to its full length


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: the same call at 10 messages. The bar is for 1,000,000; with --quick the longest is 100,000.

    Each length has a file of its own, so that a long history also means a big file. What is timed lengthens
    the history, so a short one is made anew for every round. Each WAL has reached its full length before
    the first round, because syncing a file that still grows costs more.
    """
    lengths = [SHORTEST, 1_000, 100_000] if plan.quick else [SHORTEST, 1_000, 100_000, LONGEST]
    with ExitStack() as stack:
        rounds = {}
        for length in lengths:
            progress(f"building a history of {length:,} messages")
            at = url(plan.path(f"growth/{length}"))
            with everturn.open(at) as store:  # closed and opened again: its WAL is checkpointed
                _fill(store, "long", length)
            store = stack.enter_context(everturn.open(at))
            _fill(store, "warm-up", WARM_UP)
            rounds[length] = _round(store, length)
        figures = interleave(rounds, rounds=plan.pick(60, 12))
    for work, limit in BARS.items():
        shortest = [figure[work] for figure in figures[SHORTEST]]
        for length in lengths[1:]:
            ours = [figure[work] for figure in figures[length]]
            yield Row(
                f"{work} at {length:,} messages",
                duration(statistics.median(ours)),
                f"{duration(statistics.median(shortest))} at {SHORTEST}",
                ratio(ours, shortest),
                bar=Bar("<=", limit) if length == LONGEST else None,
            )


def _round(store: everturn.MemoryStore, length: int) -> Callable[[], dict[str, float]]:
    """A round of five times snapshot, append, rollback, undo: the median seconds of each."""
    prepared = [as_messages(turn) for turn in make_turns(REPEATS)]
    numbers = itertools.count()

    def one_round() -> dict[str, float]:
        session_id = "long"
        if length < BULK:
            session_id = f"fresh-{next(numbers)}"
            _fill(store, session_id, length)
        store.add_messages(session_id, prepared[0])  # after a big turn or a pause: alike for all lengths from here
        laps = []
        for turn in prepared:
            times = [time.perf_counter()]
            snapshot = store.save_snapshot(session_id)
            times.append(time.perf_counter())
            store.add_messages(session_id, turn)
            times.append(time.perf_counter())
            store.rollback_to_snapshot(session_id, snapshot)
            times.append(time.perf_counter())
            store.undo(session_id)
            times.append(time.perf_counter())
            laps.append([after - before for before, after in itertools.pairwise(times)])
        medians = [statistics.median(column) for column in zip(*laps, strict=True)]
        return dict(zip(("snapshot", "append", "rollback", "undo"), medians, strict=True))

    return one_round


def _fill(store: everturn.MemoryStore, session_id: str, length: int) -> None:
    """Make a long history quickly: a few big turns instead of many small ones, in the same log."""
    bulk = as_messages(messages(min(length, BULK)))
    for start in range(0, length, BULK):
        store.add_messages(session_id, bulk[: length - start])
