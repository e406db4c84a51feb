"""Eight processes append to one session as fast as they can: the time of each append, and whether every turn is there."""

import itertools
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Literal

import everturn
from benchmarks.plan import Bar, Plan, Row, duration
from benchmarks.stats import percentile, spread
from everturn.bench.contenders.bare import INSERT, connect
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import Message, content, encode

WRITERS = 8
SESSION = "shared"
Kind = Literal["everturn", "bare"]
Report = tuple[int, dict[int, float], dict[int, str]]
"""A writer's number, the seconds of each turn that was acknowledged, the error of each that was not."""


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: bare apsw with SQLite's own busy handler (10 s), the next seq read inside BEGIN IMMEDIATE.

    All writers run flat out for the whole time: the worst contention there is, on fewer cores than writers.
    Runs of the two alternate. p99 is per run; worst is the one slowest append of all runs. For scale: seven
    writers ahead of one that waits its fair turn cost it seven commits.
    """
    seconds = plan.pick(3, 1)
    runs: dict[Kind, list[list[float]]] = {"everturn": [], "bare": []}
    wrong: Counter[str] = Counter()
    for number in range(plan.pick(4, 2)):
        for kind, taken_in_runs in runs.items():
            path = plan.path(f"processes/{kind}-{number}")
            reports = _run(kind, path, seconds)
            taken_in_runs.append([one for _, taken, _ in reports for one in taken.values()])
            if kind == "everturn":
                wrong += _check(path, reports)
    ours, bare = runs["everturn"], runs["bare"]
    yield _row(
        "p99",
        [percentile(run, 0.99) for run in ours],
        [percentile(run, 0.99) for run in bare],
        Bar("<=", 50.0),
    )
    yield _row("worst", [max(map(max, ours))], [max(map(max, bare))], Bar("<=", 250.0))
    rate, bare_rate = (statistics.median(map(len, taken)) / seconds for taken in (ours, bare))
    yield Row(
        f"{WRITERS} processes: errors, turns lost, doubled, torn, reordered",
        f"{wrong.total()} of {sum(map(len, ours)):,}",
        "not checked",
        spread([wrong.total()]),
        unit="",
        bar=Bar("<=", 0),
        note=f"{rate:,.0f} turns/s, bare {bare_rate:,.0f}" + (f"; {dict(wrong)}" if wrong else ""),
    )


def _row(name: str, ours: list[float], bare: list[float], bar: Bar) -> Row:
    return Row(
        f"{WRITERS} processes, one session: {name} append",
        duration(statistics.median(ours)),
        f"{duration(statistics.median(bare))} bare, SQLite's busy handler",
        spread([taken * 1e3 for taken in ours]),
        unit=" ms",
        bar=bar,
    )


def _run(kind: Kind, path: Path, seconds: float) -> list[Report]:
    """Start the writers together, let them write, collect what each says."""
    context = multiprocessing.get_context("spawn")
    reports: Queue[Report] = context.Queue()
    shared = {"seconds": seconds, "barrier": context.Barrier(WRITERS), "reports": reports}
    writers = [context.Process(target=_write, args=(kind, path, number), kwargs=shared) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    collected = [reports.get(timeout=seconds + 60) for _ in writers]
    for writer in writers:
        writer.join()
    return collected


def _write(kind: Kind, path: Path, number: int, *, seconds: float, barrier: Barrier, reports: "Queue[Report]") -> None:
    """Be one writer. Each message carries its writer, turn and place, so that the check can be exact."""
    taken: dict[int, float] = {}
    errors: dict[int, str] = {}
    with closing(_EverturnWriter(path) if kind == "everturn" else _BareWriter(path)) as target:
        texts = [content(index) for index in range(64)]
        barrier.wait(timeout=60)
        deadline = time.perf_counter() + seconds
        turn = 0
        while time.perf_counter() < deadline:
            append = target.prepare([_marked(number, turn, place, texts[turn % 64]) for place in (0, 1)])
            start = time.perf_counter()
            try:
                append()
            except Exception as exc:  # noqa: BLE001  an error is a finding here, not the end of the run
                errors[turn] = f"{type(exc).__name__}: {exc}"
            else:
                taken[turn] = time.perf_counter() - start
            turn += 1
    reports.put((number, taken, errors))


def _marked(writer: int, turn: int, place: int, text: str) -> Message:
    mark = f"{writer}/{turn}/{place} "
    return {"role": "assistant" if place else "user", "content": mark + text[len(mark) :]}


class _EverturnWriter:
    def __init__(self, path: Path) -> None:
        self._store = everturn.open(url(path))

    def prepare(self, turn: list[Message]) -> Callable[[], object]:
        messages = as_messages(turn)
        return lambda: self._store.add_messages(SESSION, messages)

    def close(self) -> None:
        self._store.close()


class _BareWriter:
    def __init__(self, path: Path) -> None:
        self._connection = connect(path)

    def prepare(self, turn: list[Message]) -> Callable[[], object]:
        return lambda: self._append(turn)

    def _append(self, turn: list[Message]) -> None:
        bodies = [encode(message) for message in turn]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        seq = execute("SELECT coalesce(max(seq), 0) FROM log WHERE session = ?", (SESSION,)).get
        self._connection.executemany(INSERT, [(SESSION, seq + place, body) for place, body in enumerate(bodies, 1)])
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def _check(path: Path, reports: list[Report]) -> Counter[str]:
    """Compare what the session holds with what the writers were told. Turns are unique: one pass does."""
    with everturn.open(url(path)) as store:
        marks = [str(message.content).split(" ")[0].split("/") for message in store.get_history(SESSION)]
    wrong: Counter[str] = Counter()
    found: dict[int, list[int]] = {writer: [] for writer, _, _ in reports}
    at = 0
    while at < len(marks):
        writer, turn, place = marks[at]
        whole = place == "0" and marks[at + 1 : at + 2] == [[writer, turn, "1"]]
        wrong["torn"] += not whole
        found[int(writer)].append(int(turn))
        at += 2 if whole else 1
    for number, taken, errors in reports:
        held = found[number]
        wrong.update(errors.values())
        wrong["lost"] += len(taken.keys() - set(held))
        wrong["doubled"] += len(held) - len(set(held))
        wrong["reordered"] += sum(later < earlier for earlier, later in itertools.pairwise(held))
        wrong["phantom"] += len(set(held) - taken.keys() - errors.keys())
    return +wrong
