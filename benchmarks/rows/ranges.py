"""Cost of an edited history: 1,000 messages in one range of the log, and in 1,000 ranges."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import everturn
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.stats import ratio
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import messages
from everturn.bench.workload import turns as make_turns

MESSAGES = 1_000
LOADS = 5


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: the same 1,000 messages appended in turns of two, in one range.

    In the other session each message but the last was followed by one that the next `replace` took away
    again: the head's path is 1,000 ranges of one message, and the log holds 1,999 entries. That is the
    worst a user who regenerates every answer can make.
    """
    yield from compare(plan, lambda name: everturn.open(url(plan.path(f"ranges/{name}"))))


def compare(plan: RunPlan, open_empty: Callable[[str], everturn.MemoryStore], prefix: str = "") -> Iterator[TableRow]:
    """Yield the rows of one backend. `open_empty` opens a store by a name, `prefix` begins the names of the rows."""
    with ExitStack() as stack:
        progress(f"building {MESSAGES:,} messages in 1 and in {MESSAGES:,} ranges")
        stores = {}
        for ranges, build in ((1, _one_range), (MESSAGES, _many_ranges)):
            stores[ranges] = stack.enter_context(open_empty(str(ranges)))
            build(stores[ranges])
        for work, one_round, rounds in (
            ("load 1,000 messages", _load_round, plan.pick(40, 10)),
            ("append a turn", _append_round, plan.pick(40, 10)),
        ):
            figures = interleave({ranges: one_round(store) for ranges, store in stores.items()}, rounds=rounds)
            yield TableRow(
                f"{prefix}{work} at {MESSAGES:,} ranges",
                duration(statistics.median(figures[MESSAGES])),
                f"{duration(statistics.median(figures[1]))} at 1 range",
                ratio(figures[MESSAGES], figures[1]),
                bar=Bar("<=", 3.0) if one_round is _load_round else None,
            )


def _one_range(store: everturn.MemoryStore) -> None:
    for turn in make_turns(MESSAGES // 2):
        store.add_messages("s", as_messages(turn))


def _many_ranges(store: everturn.MemoryStore) -> None:
    after = 0
    for number, message in enumerate(as_messages(messages(MESSAGES)), 1):
        regretted = [] if number == MESSAGES else [message]
        after = store.replace("s", [message, *regretted], after=after).seqs[0]


def _load_round(store: everturn.MemoryStore) -> Callable[[], float]:
    def one_round() -> float:
        seconds = []
        for _ in range(LOADS):
            start = time.perf_counter()
            loaded = store.get_history("s")
            seconds.append(time.perf_counter() - start)
            if len(loaded) != MESSAGES:
                raise RuntimeError(f"loaded {len(loaded)} of {MESSAGES} messages")
        return statistics.median(seconds)

    return one_round


def _append_round(store: everturn.MemoryStore) -> Callable[[], float]:
    prepared = [as_messages(turn) for turn in make_turns(5)]

    def one_round() -> float:
        seconds = []
        for turn in prepared:
            start = time.perf_counter()
            store.add_messages("s", turn)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    return one_round
