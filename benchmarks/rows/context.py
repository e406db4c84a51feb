"""Prompts that fit: what `get_context` costs beside a plain read of as many messages, and the request of a fold.

And a turn of an agent that compacts its session now and then, beside two frameworks that do the same.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import everturn
from benchmarks.contenders.compacting import LONGEST
from benchmarks.delayed_link import delayed
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.stats import ratio
from everturn.backend import Fold, Query, drive
from everturn.bench.contenders import Entrant
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.contenders.process import ContenderError, ContenderProcess
from everturn.bench.contenders.timing import Cost, costs
from everturn.bench.workload import turns as make_turns
from everturn.core import codec
from everturn.model import Summary

LENGTHS = (1_000, 1_000_000)
LATEST = 20
READS = 20
TURNS = 42  # of a round: two compactions of everturn and of LlamaIndex, and two of OpenAI's
FOLDING = Entrant("everturn", "benchmarks.contenders.compacting:EverturnFolding", ("everturn", "apsw"))
COMPACTING = (
    Entrant(
        "OpenAI Agents' compaction session",
        "benchmarks.contenders.compacting:OpenAICompactionSession",
        ("openai-agents",),
    ),
    Entrant(
        "LlamaIndex Memory", "benchmarks.contenders.compacting:LlamaIndexMemory", ("llama-index-core", "aiosqlite")
    ),
)


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baselines: `get_history(limit=20)` of the same session; an append of two messages to it.

    The summary of a fold is as long as a message. Its model is not measured: only the request that follows it.
    """
    with everturn.open(url(plan.path("context"))) as store:
        yield from compare(plan, store)
    if plan.peers:
        yield from _compacting(plan)


def on_server(plan: RunPlan, server: str, name: str) -> Iterator[TableRow]:
    """Yield the rows of a server: over loopback, and the reads over a link with delay, as servers are used."""
    with everturn.open(server, warnings=False, timeout=60) as store:
        yield from compare(plan, store, f"{name}: ")
    with delayed(server) as url, everturn.open(url, warnings=False, timeout=60) as store:
        yield from _reads(
            plan, store, "context-1000", f"{name} over a link with 0.5 ms of delay: ", "1,000 messages, folded"
        )


def compare(plan: RunPlan, store: everturn.MemoryStore, prefix: str = "") -> Iterator[TableRow]:
    """Yield the rows of one backend, whose names begin with `prefix`."""
    for length in LENGTHS[:1] if plan.quick else LENGTHS:
        session_id = f"context-{length}"
        progress(f"filling {length:,} messages")
        for _ in range(0, length, 10_000):
            some = make_turns(min(length, 10_000) // 2)
            store.add_messages(session_id, [message for turn in some for message in as_messages(turn)])
        for turn in make_turns(LATEST):
            store.add_messages(session_id, as_messages(turn))
        yield from _rows(plan, store, session_id, prefix, f"{length:,} messages")
        store.fold(session_id, lambda *_: "x" * 200, max_messages=2 * LATEST)
        yield from _rows(plan, store, session_id, prefix, f"{length:,} messages, folded")


def _rows(plan: RunPlan, store: everturn.MemoryStore, session_id: str, prefix: str, where: str) -> Iterator[TableRow]:
    yield from _reads(plan, store, session_id, prefix, where)
    changes = interleave(
        {"fold": _folding(store, session_id), "append": _appending(store, session_id)}, rounds=plan.pick(20, 5)
    )
    yield TableRow(
        f"{prefix}the request of a fold, of {where}",
        duration(statistics.median(changes["fold"])),
        f"{duration(statistics.median(changes['append']))} append of a turn",
        ratio(changes["fold"], changes["append"]),
        bar=Bar("<=", 1.5),
    )


def _reads(plan: RunPlan, store: everturn.MemoryStore, session_id: str, prefix: str, where: str) -> Iterator[TableRow]:
    reads = interleave(
        {
            "context": _reading(lambda: store.get_context(session_id, max_messages=LATEST)),
            "history": _reading(lambda: store.get_history(session_id, limit=LATEST)),
        },
        rounds=plan.pick(40, 10),
    )
    for what, column in (("", 0), (": processor time of the client", 1)):
        ours, plain = ([cost[column] for cost in reads[name]] for name in ("context", "history"))
        yield TableRow(
            f"{prefix}get_context of {LATEST} messages, of {where}{what}",
            duration(statistics.median(ours)),
            f"{duration(statistics.median(plain))} get_history(limit={LATEST})",
            ratio(ours, plain),
            bar=None if column else Bar("<=", 1.2),
        )


def _reading(read: Callable[[], object]) -> Callable[[], Cost]:
    def one_round() -> Cost:
        taken = costs(lambda _: read(), range(READS))
        return Cost(*map(statistics.median, zip(*taken, strict=True)))

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
        action = Fold(session.life, seen, seen.floor + 1, seen.kept, 1, codec.encode(summary, "summary", 2**20))
        start = time.perf_counter()
        drive(operations._outcome(session_id, action, None, None, ()))
        seconds = time.perf_counter() - start
        store.undo(session_id)
        return seconds

    return one_round


def _compacting(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: a framework's session that compacts itself, at the same length, with a model that answers at once."""
    with ExitStack() as stack:
        hosted: dict[Entrant, ContenderProcess] = {}
        for entrant in (FOLDING, *COMPACTING):
            contender = stack.enter_context(ContenderProcess(entrant, plan.path(f"compacting/{entrant.title}")))
            try:
                contender.agent_turns("compacting", turns=LONGEST, first=0, count=LONGEST)
            except ContenderError as exc:
                yield TableRow(entrant.title, "", str(exc))
            else:
                hosted[entrant] = contender
        taken = interleave(
            {entrant: _turns_round(contender) for entrant, contender in hosted.items()}, rounds=plan.pick(15, 4)
        )
    for peer in (entrant for entrant in COMPACTING if entrant in taken and FOLDING in taken):
        for what, column in (("", 0), (": processor time of the client", 1)):
            ours, theirs = ([cost[column] for cost in taken[entrant]] for entrant in (FOLDING, peer))
            yield TableRow(
                f"a turn with its share of compactions{what}: times faster than {peer.title}",
                duration(statistics.median(ours)),
                duration(statistics.median(theirs)),
                ratio(theirs, ours),
                bar=Bar(">=", 1.0),
            )


def _turns_round(contender: ContenderProcess) -> Callable[[], Cost]:
    """A round of turns; their mean, because the few that compact are what is compared."""
    numbers = itertools.count(LONGEST, TURNS)

    def one_round() -> Cost:
        taken = contender.agent_turns("compacting", turns=TURNS, first=next(numbers), count=LONGEST)
        return Cost(*(statistics.fmean(column) for column in zip(*taken, strict=True)))

    return one_round
