"""Stores on a server, the same rows for every backend: one writer, loading, 256 tasks, and the peers on that server."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks.backends import MeasuredBackend, Running
from benchmarks.delayed_link import delayed
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.rows import latest
from benchmarks.rows.append import append_round
from benchmarks.rows.load import MESSAGES, load_round
from benchmarks.stats import ratio, spread
from everturn.bench.contenders import Entrant
from everturn.bench.contenders.process import ContenderError, ContenderProcess

TURNS = 20
TASKS, TASK_TURNS = 256, 5

Figures = Mapping[Entrant, list[float]]


def measure(plan: RunPlan, backend: MeasuredBackend, server: Running) -> Iterator[TableRow]:
    """Baseline: the bare driver on the same server, which encodes and writes the two messages in one round trip.

    Every contender is a process of its own with a client of its own. The bar of the append is for `MemoryStore`.
    With 256 tasks, each on a session of its own, everyone has as many connections as everturn opens by default,
    unless it opens its own; the bar is over the best of the peers.
    """
    yield TableRow(f"{backend.name}: the server", server.version, backend.durability)
    with ExitStack() as stack:
        entrants = [entrant for entrant in backend.everyone if plan.peers or entrant not in backend.peers]
        started = {entrant: stack.enter_context(ContenderProcess(entrant, server.url)) for entrant in entrants}
        pool = stack.enter_context(ThreadPoolExecutor(len(started)))  # filling is not timed: let them share the cores
        filled = {entrant: pool.submit(_fill, contender) for entrant, contender in started.items()}
        hosted: dict[Entrant, ContenderProcess] = {}
        for entrant, contender in started.items():
            progress(f"writing {MESSAGES:,} messages to {entrant.title}")
            try:
                filled[entrant].result()
            except ContenderError as exc:
                yield TableRow(f"{backend.name}: {entrant.title}", "", str(exc))
            else:
                hosted[entrant] = contender
        peers = [peer for peer in backend.peers if peer in hosted]
        yield from _one_writer(plan, backend, hosted, peers)
        yield from _loading(plan, backend, hosted, peers)
        field = latest.Field(
            backend.name, backend.ours, backend.ours_async, backend.bare, peers, latest.Bars(read=backend.read_bar)
        )
        yield from latest.compare(plan, field, hosted)
        yield from _many_tasks(plan, backend, hosted, peers, server)
    with delayed(server.url) as url, ExitStack() as stack:
        far = {entrant: stack.enter_context(ContenderProcess(entrant, url)) for entrant in hosted}
        far.pop(backend.twin)
        yield from latest.over_a_link(plan, field, far)


def _fill(contender: ContenderProcess) -> None:
    contender.append("long", turns=MESSAGES // 2)
    contender.append("warm-up", turns=TURNS)


def _one_writer(
    plan: RunPlan, backend: MeasuredBackend, hosted: dict[Entrant, ContenderProcess], peers: list[Entrant]
) -> Iterator[TableRow]:
    rounds = {entrant: append_round(contender, turns=TURNS) for entrant, contender in hosted.items()}
    slow = {peer: rounds.pop(peer) for peer in peers}  # apart: their work would cool the caches of the others
    figures = interleave(rounds, rounds=plan.pick(120, 30))
    for name, entrant, bar in (
        ("append a turn, one writer", backend.ours, Bar("<=", 1.4)),
        ("append a turn, one async task", backend.ours_async, None),
        ("noise: the bare driver over its twin", backend.twin, None),
    ):
        yield _against(backend, name, figures, entrant, backend.bare, bar)
    if peers:
        figures = interleave({backend.ours: rounds[backend.ours], **slow}, rounds=plan.pick(30, 8))
        for peer in peers:
            yield _faster(backend, "append a turn", figures, peer)


def _loading(
    plan: RunPlan, backend: MeasuredBackend, hosted: dict[Entrant, ContenderProcess], peers: list[Entrant]
) -> Iterator[TableRow]:
    entrants = (backend.ours, backend.ours_async, backend.bare, *peers)
    figures = interleave(
        {entrant: load_round(hosted[entrant], messages=MESSAGES) for entrant in entrants}, rounds=plan.pick(20, 5)
    )
    what = "load 1,000 messages"
    yield _against(backend, f"{what} as objects", figures, backend.ours, backend.bare, Bar("<=", 0.6))
    yield _against(backend, f"{what}, async", figures, backend.ours_async, backend.bare, None)
    for peer in peers:
        yield _faster(backend, what, figures, peer)
    if peers:
        fastest = min(peers, key=lambda peer: statistics.median(figures[peer]))
        yield _faster(backend, what, figures, fastest, "the fastest peer", Bar(">=", 3.0, wanted=True))


def _many_tasks(
    plan: RunPlan,
    backend: MeasuredBackend,
    hosted: dict[Entrant, ContenderProcess],
    peers: list[Entrant],
    server: Running,
) -> Iterator[TableRow]:
    used: dict[Entrant, list[float]] = {}
    entrants = (backend.ours_async, backend.bare, *peers)
    rounds = {entrant: _tasks_round(hosted[entrant], server, used.setdefault(entrant, [])) for entrant in entrants}
    figures = interleave(rounds, rounds=plan.pick(12, 3))
    what = f"{backend.name}: {TASKS} async sessions"
    ours, rate = figures[backend.ours_async], statistics.median(figures[backend.ours_async])
    for other in (backend.bare, *peers):
        yield TableRow(
            f"{what}: times the rate of {other.title}",
            f"{rate:,.0f} turns/s",
            f"{statistics.median(figures[other]):,.0f} turns/s",
            ratio(ours, figures[other]),
        )
    if peers:
        best = max(peers, key=lambda peer: statistics.median(figures[peer]))
        yield TableRow(
            f"{what}: times the rate of the best peer",
            f"{rate:,.0f} turns/s",
            f"{statistics.median(figures[best]):,.0f} turns/s {best.title}",
            ratio(ours, figures[best]),
            bar=Bar(">=", 3.0),
        )
    yield TableRow(
        f"{what}: processor time of the server for a turn",
        duration(statistics.median(used[backend.ours_async])),
        f"{duration(statistics.median(used[backend.bare]))} {backend.bare.title}",
        spread([seconds * 1e6 for seconds in used[backend.ours_async]]),
        unit=" us",
    )


def _tasks_round(contender: ContenderProcess, server: Running, used: list[float]) -> Callable[[], float]:
    """A round of new sessions: turns per second. Adds the server's processor seconds of a turn to `used`."""
    numbers = itertools.count()

    def one_round() -> float:
        number, before = next(numbers), server.seconds()
        taken = contender.append_from_tasks([f"tasks-{number}-{task}" for task in range(TASKS)], turns=TASK_TURNS)
        used.append((server.seconds() - before) / (TASKS * TASK_TURNS))
        return TASKS * TASK_TURNS / taken

    return one_round


def _against(
    backend: MeasuredBackend, name: str, figures: Figures, entrant: Entrant, base: Entrant, bar: Bar | None
) -> TableRow:
    return TableRow(
        f"{backend.name}: {name}",
        duration(statistics.median(figures[entrant])),
        f"{duration(statistics.median(figures[base]))} {base.title}",
        ratio(figures[entrant], figures[base]),
        bar=bar,
    )


def _faster(
    backend: MeasuredBackend,
    work: str,
    figures: Figures,
    peer: Entrant,
    name: str | None = None,
    bar: Bar | None = None,
) -> TableRow:
    return TableRow(
        f"{backend.name}: {work}: times faster than {name or peer.title}",
        duration(statistics.median(figures[backend.ours])),
        duration(statistics.median(figures[peer])) + (f" {peer.title}" if name else ""),
        ratio(figures[peer], figures[backend.ours]),
        bar=bar,
    )
