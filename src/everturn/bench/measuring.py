"""The measurements of `everturn bench`: appends as the history grows, several writers, bytes on disk.

Each contender is a process of its own, and each figure a median. No session of the user's is touched: on SQLite the
files go to a directory beside the user's, on a server the sessions have ids of their own. Both are removed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

from everturn.bench.contenders import BARE, EVERTURN, Entrant, Place
from everturn.bench.contenders.process import ContenderError, ContenderProcess

LENGTHS = (10, 100, 1_000, 10_000)
WRITERS = (1, 2, 4, 8)
SAMPLES = 60  # turns that a latency is the median of
TURNS = 25  # that each of several writers appends
TOO_LONG = 20.0  # seconds to fill a history: a contender that needs more stops growing there

SERVERS = {
    "redis": (
        "everturn.bench.contenders.everturn_store:Everturn",
        "bare RPUSH",
        "everturn.bench.contenders.on_redis.bare:BareRedis",
    ),
    "postgres": (
        "everturn.bench.contenders.everturn_store:Everturn",
        "bare INSERT",
        "everturn.bench.contenders.on_postgres.bare:BarePostgres",
    ),
}


class ChartPoint(msgspec.Struct, frozen=True):
    """One figure of one contender. `x` is a number of messages or of writers."""

    x: int
    y: float


class Curve(msgspec.Struct, frozen=True):
    """The figures of one contender; `note` says why they end where they do, if they do."""

    contender: str
    points: tuple[ChartPoint, ...]
    note: str = ""


class Chart(msgspec.Struct, frozen=True):
    """One thing that was measured, for all contenders: in seconds, turns a second, or bytes."""

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]


def contenders(backend: str) -> tuple[Entrant, ...]:
    """The contenders of `everturn bench` on a backend: everturn, and the bare driver."""
    if backend == "sqlite":
        return EVERTURN, BARE
    store, title, bare = SERVERS[backend]
    return Entrant("everturn", store, ("everturn",)), Entrant(title, bare, ())


def measure(
    entrants: Sequence[Entrant], place: Callable[[str], Place], *, quick: bool, tell: Callable[[str], None]
) -> Iterator[Chart]:
    """The charts, one after the other. `place` gives each contender a new place to keep what it is given."""
    lengths = LENGTHS[:3] if quick else LENGTHS
    grown: list[tuple[Curve, Curve]] = []
    for entrant in entrants:
        tell(f"{entrant.title}: a history that grows")
        grown.append(_by_length(entrant, place(f"growth-{len(grown)}"), lengths))
    latencies = tuple(curve for curve, _ in grown)
    yield Chart("append", "Append one turn of two 200-byte messages", "messages in the session", "seconds", latencies)
    sizes = tuple(curve for _, curve in grown if curve.points)
    if sizes:
        yield Chart("disk", "Bytes on disk", "messages in the session", "bytes", sizes)
    busy: list[Curve] = []
    for number, entrant in enumerate(entrants):
        tell(f"{entrant.title}: several writers")
        busy.append(_by_writers(entrant, place(f"writers-{number}"), WRITERS[:3] if quick else WRITERS))
    yield Chart("writers", "Turns a second, each writer a process", "writers", "turns a second", tuple(busy))


def _by_length(entrant: Entrant, place: Place, lengths: Sequence[int]) -> tuple[Curve, Curve]:
    """The latency of an append, and the bytes on disk, at each length."""
    latencies: list[ChartPoint] = []
    sizes: list[ChartPoint] = []
    note = ""
    with ContenderProcess(entrant, place) as hosted:
        try:
            hosted.ready()  # imports take seconds, and are not what is measured
            written = 0
            for length in lengths:
                start = time.monotonic()
                while written < length:
                    turns = min((length - written) // 2, 250)
                    hosted.append("growing", turns=turns, first=written // 2)
                    written += 2 * turns
                    _refuse_slow(time.monotonic() - start, length)
                if isinstance(place, Path):
                    sizes.append(
                        ChartPoint(length, sum(file.stat().st_size for file in place.rglob("*") if file.is_file()))
                    )
                taken = hosted.append("growing", turns=SAMPLES, first=written // 2)
                written += 2 * SAMPLES
                latencies.append(ChartPoint(length, statistics.median(taken)))
        except ContenderError as exc:
            note = str(exc)
    return Curve(entrant.title, tuple(latencies), note), Curve(entrant.title, tuple(sizes), note)


def _refuse_slow(seconds: float, length: int) -> None:
    if seconds > TOO_LONG:
        raise ContenderError(f"more than {TOO_LONG:.0f} s to reach {length:,} messages")


def _by_writers(entrant: Entrant, place: Place, writers: Sequence[int]) -> Curve:
    """Turns a second by number of processes, each of which appends to a session of its own in one database."""
    points: list[ChartPoint] = []
    note = ""
    with ExitStack() as stack:
        hosted: list[ContenderProcess] = []
        try:
            for number in writers:
                while len(hosted) < number:
                    hosted.append(stack.enter_context(ContenderProcess(entrant, place)))
                    hosted[-1].append(f"session-{len(hosted)}", turns=2)  # it is there, and warm
                with ThreadPoolExecutor(number) as pool:
                    start = time.perf_counter()
                    done = [
                        pool.submit(one.append, f"session-{place_}", turns=TURNS, first=10)
                        for place_, one in enumerate(hosted, 1)
                    ]
                    for each in done:
                        each.result()
                    points.append(ChartPoint(number, number * TURNS / (time.perf_counter() - start)))
        except ContenderError as exc:
            note = str(exc)
    return Curve(entrant.title, tuple(points), note)
