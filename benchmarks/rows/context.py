"""Prompts that fit: what `get_context` costs beside a plain read of as many messages, and the request of a fold."""

import statistics
import time
from collections.abc import Callable, Iterator

import everturn
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.stats import ratio
from everturn.backend import Fold, Query, drive
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import turns as make_turns
from everturn.core import codec
from everturn.model import Summary

LENGTHS = (1_000, 1_000_000)
LATEST = 20
READS = 20


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baselines: `get_history(limit=20)` of the same session; an append of two messages to it.

    The summary of a fold is as long as a message. Its model is not measured: only the request that follows it.
    """
    with everturn.open(url(plan.path("context"))) as store:
        for length in LENGTHS[:1] if plan.quick else LENGTHS:
            session_id = f"context-{length}"
            progress(f"filling {length:,} messages")
            for _ in range(0, length, 10_000):
                some = make_turns(min(length, 10_000) // 2)
                store.add_messages(session_id, [message for turn in some for message in as_messages(turn)])
            for turn in make_turns(LATEST):
                store.add_messages(session_id, as_messages(turn))
            yield from _rows(plan, store, session_id, f"{length:,} messages")
            store.fold(session_id, lambda *_: "x" * 200, max_messages=2 * LATEST)
            yield from _rows(plan, store, session_id, f"{length:,} messages, folded")


def _rows(plan: RunPlan, store: everturn.MemoryStore, session_id: str, where: str) -> Iterator[TableRow]:
    rounds = plan.pick(40, 10)
    reads = interleave(
        {
            "context": _reading(lambda: store.get_context(session_id, max_messages=LATEST)),
            "history": _reading(lambda: store.get_history(session_id, limit=LATEST)),
        },
        rounds=rounds,
    )
    yield TableRow(
        f"get_context of {LATEST} messages, of {where}",
        duration(statistics.median(reads["context"])),
        f"{duration(statistics.median(reads['history']))} get_history(limit={LATEST})",
        ratio(reads["context"], reads["history"]),
        bar=Bar("<=", 1.2),
    )
    changes = interleave(
        {"fold": _folding(store, session_id), "append": _appending(store, session_id)}, rounds=plan.pick(20, 5)
    )
    yield TableRow(
        f"the request of a fold, of {where}",
        duration(statistics.median(changes["fold"])),
        f"{duration(statistics.median(changes['append']))} append of a turn",
        ratio(changes["fold"], changes["append"]),
        bar=Bar("<=", 1.5),
    )


def _reading(read: Callable[[], object]) -> Callable[[], float]:
    def one_round() -> float:
        seconds = []
        for _ in range(READS):
            start = time.perf_counter()
            read()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    return one_round


def _appending(store: everturn.MemoryStore, session_id: str) -> Callable[[], float]:
    (turn,) = map(as_messages, make_turns(1))

    def one_round() -> float:
        start = time.perf_counter()
        store.add_messages(session_id, turn)
        return time.perf_counter() - start

    return one_round


def _folding(store: everturn.MemoryStore, session_id: str) -> Callable[[], float]:
    """The request of a fold, with a plan that was made before. `undo` then brings back the state for the next round."""
    operations = store._operations

    def one_round() -> float:
        state = drive(operations._page(Query(session_id, limit=0), time.monotonic() + 60)).reading
        seen, session = state.state, state.session
        assert session is not None
        summary = Summary("x" * 200, None, (1, seen.floor + 1), extra={codec.FOLD_MARK: True})
        effect = Fold(session.life, seen, seen.floor + 1, seen.kept, 1, codec.encode(summary, "summary", 2**20))
        start = time.perf_counter()
        drive(operations._outcome(session_id, effect, None, None, ()))
        seconds = time.perf_counter() - start
        store.undo(session_id)
        return seconds

    return one_round
