"""A turn and 1,000 messages in other stores for SQLite, each in a process of its own."""

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contenders.on_sqlite import PEERS
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.rows.append import append_round
from benchmarks.rows.load import MESSAGES, load_round
from benchmarks.stats import ratio
from everturn.bench.contenders import EVERTURN, Entrant
from everturn.bench.contenders.process import ContenderError, ContenderProcess

TURNS = 10


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: each peer with its own defaults through its own API. Ratios say how much faster we are.

    Appends go to a short session (at most 10 turns), which is kind to LangGraph, whose append grows with
    the history. Two of the peers keep SQLite's rollback journal, as they come; tuning them is left to their
    users.
    """
    with ExitStack() as stack:
        hosted: dict[Entrant, ContenderProcess] = {}
        disk: dict[Entrant, int] = {}
        paths = {entrant: plan.path(f"peers/{entrant.title}") for entrant in (EVERTURN, *PEERS)}
        started = {entrant: stack.enter_context(ContenderProcess(entrant, path)) for entrant, path in paths.items()}
        pool = stack.enter_context(ThreadPoolExecutor(len(started)))  # filling is not timed: let them share the cores
        filled = {
            entrant: pool.submit(contender.append, "long", turns=MESSAGES // 2)
            for entrant, contender in started.items()
        }
        for entrant, contender in started.items():
            progress(f"writing {MESSAGES:,} messages to {entrant.title}")
            try:
                filled[entrant].result()
            except ContenderError as exc:
                yield TableRow(entrant.title, "", str(exc))
                continue
            hosted[entrant] = contender
            disk[entrant] = _bytes(paths[entrant])
        peers = [entrant for entrant in hosted if entrant != EVERTURN]
        if EVERTURN not in hosted or not peers:
            return
        figures = {
            "append a turn": interleave(
                {entrant: append_round(contender, turns=TURNS) for entrant, contender in hosted.items()},
                rounds=plan.pick(15, 4),
            ),
            "load 1,000 messages": interleave(
                {entrant: load_round(contender, messages=MESSAGES) for entrant, contender in hosted.items()},
                rounds=plan.pick(10, 3),
            ),
        }
    for work, taken in figures.items():
        for peer in peers:
            yield _row(f"{work}: times faster than {peer.title}", taken, peer)
    loads = figures["load 1,000 messages"]
    fastest = min(peers, key=lambda peer: statistics.median(loads[peer]))
    yield _row("load 1,000 messages: times faster than the fastest peer", loads, fastest, bar=Bar(">=", 3.0))
    yield TableRow(
        "bytes on disk, 1,000 messages in 500 turns, WAL included",
        f"{disk[EVERTURN] / 1e6:.1f} MB",
        "peers",
        note=", ".join(f"{peer.title} {disk[peer] / 1e6:.1f} MB" for peer in peers),
    )


def _row(name: str, taken: dict[Entrant, list[float]], peer: Entrant, bar: Bar | None = None) -> TableRow:
    return TableRow(
        name,
        duration(statistics.median(taken[EVERTURN])),
        f"{duration(statistics.median(taken[peer]))} {peer.title}" if bar else duration(statistics.median(taken[peer])),
        ratio(taken[peer], taken[EVERTURN]),
        bar=bar,
    )


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())
