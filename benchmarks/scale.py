"""A program of its own: time and client memory of each operation where there is much of something.

python -m benchmarks.scale                            # SQLite, Valkey and PostgreSQL, started here
python -m benchmarks.scale --only sqlite --small      # a hundredth of everything, to try it
python -m benchmarks.scale --steady 60                # and a day's turns, one a second, within so many minutes

Each row has a bound of its worst time, which is written here. A bound is no timing that a test checks: the run prints
what is out of it. A worst far above the median is a disk at work: a checkpoint after the filling, a sync that waited.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import everturn
from benchmarks.stats import percentile
from everturn import ChatMessage, MemoryStore
from everturn.testing.servers import postgres_server, valkey_server

REPEATS = 5
TIMEOUT = 120.0
MIB = 2**20


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    messages: int = 1_000_000
    sessions: int = 100_000
    snapshots: int = 10_000
    rollbacks: int = 10_000
    message_bytes: int = 16 * MIB - 1024  # the default of max_message_bytes, less what JSON adds
    day: int = 86_400  # turns: one a second

    def divided(self, by: int) -> Size:
        """A smaller one, to try this program."""
        parts = (self.messages, self.sessions, self.snapshots, self.rollbacks, self.message_bytes, self.day)
        return Size(*(part // by for part in parts))


@dataclass(frozen=True)
class Operation:
    """An operation with its bounds: milliseconds, and mebibytes that the client needs beyond what it had."""

    name: str
    run: Callable[[], object]
    milliseconds: float
    mebibytes: float = 16
    repeats: int = REPEATS


def turn(number: int, count: int = 2) -> list[ChatMessage]:
    """A turn of 200-byte messages."""
    return [ChatMessage("assistant" if at % 2 else "user", f"{number}-{at} ".ljust(200, "x")) for at in range(count)]


# --- where there is much -------------------------------------------------------------------------------------------


def one_long_session(store: MemoryStore, size: Size) -> Iterator[Operation]:
    """A session of very many messages."""
    name = "long"
    for number in range(0, size.messages, 500):
        store.add_messages(name, turn(number, 500))
    snapshot = store.save_snapshot(name)
    middle = store.info(name).last_seq // 2
    yield Operation("append a turn", lambda: store.add_messages(name, turn(1)), 20)
    yield Operation("read the latest 20", lambda: store.get_history(name, limit=20), 10)
    yield Operation("get_context of 20 messages", lambda: store.get_context(name, max_messages=20), 10)
    yield Operation("read 20 before the middle", lambda: store.get_history(name, limit=20, before=middle), 10)
    yield Operation("info", lambda: store.info(name), 10)
    yield Operation("changes(limit=20)", lambda: store.changes(name, limit=20), 20)
    yield Operation("snapshot", lambda: store.save_snapshot(name), 20)
    yield Operation("rollback, and undo", lambda: _there_and_back(store, name, snapshot.id), 40)
    yield Operation("find a text, the latest match", lambda: store.find("x", session_id=name, limit=1), 5_000, 64)
    yield Operation("fork", lambda: store.fork(name, "long-fork"), 120_000, 64, repeats=1)
    shorten = partial(store.trim, name, max_messages=1_000)
    yield Operation("trim to 1,000 messages", lambda: shorten(keep_system=False), 1_000, 64, repeats=1)
    store.undo(name)
    # System messages may be anywhere, so that it reads all messages: some microseconds each.
    yield Operation("trim that keeps system messages", shorten, 20_000, 64, repeats=1)
    yield Operation("get_context of 20 messages, trimmed", lambda: store.get_context(name, max_messages=20), 10)
    yield Operation("clear", lambda: store.clear(name), 50, repeats=1)
    yield Operation("erase", lambda: _erased(store, name, "long-fork"), 120_000, 64, repeats=1)


def many_sessions(store: MemoryStore, size: Size) -> Iterator[Operation]:
    """Very many sessions of one turn."""
    for number in range(size.sessions):
        store.add_messages(f"user-{number % 1000}/{number}", turn(number))
    some = f"user-7/{7 + size.sessions // 2 // 1000 * 1000}"
    page = store.sessions(limit=100).next
    yield Operation("append a turn", lambda: store.add_messages(some, turn(1)), 20)
    yield Operation("read the latest 20", lambda: store.get_history(some, limit=20), 10)
    yield Operation("list 100 sessions", lambda: store.sessions(limit=100), 500)
    yield Operation("list the next 100", lambda: store.sessions(limit=100, page=page), 500)
    yield Operation("list by prefix", lambda: store.sessions("user-7/", limit=100), 5_000)
    # On SQLite the whole file is rewritten: 100 MB of sessions, so that no byte of the erased one is left.
    yield Operation("erase one", lambda: store.erase(some), 5_000, repeats=1)


def many_snapshots(store: MemoryStore, size: Size) -> Iterator[Operation]:
    """Very many snapshots of one session."""
    name = "snapshots"
    store.add_messages(name, turn(0))
    first = store.save_snapshot(name)
    for number in range(1, size.snapshots):
        store.add_messages(name, turn(number))
        store.save_snapshot(name, label=f"s{number}")
    yield Operation("append a turn", lambda: store.add_messages(name, turn(1)), 20)
    yield Operation("snapshot", lambda: store.save_snapshot(name), 20)
    yield Operation("list all snapshots", lambda: store.list_snapshots(name), 2_000, 64)
    yield Operation("read at the first snapshot", lambda: store.get_history(name, at=first.id), 20)
    yield Operation("rollback to the first, and undo", lambda: _there_and_back(store, name, first.id), 40)
    yield Operation("delete one", lambda: store.delete_snapshot(name, store.save_snapshot(name)), 50)
    yield Operation("verify", lambda: store.verify(name), 20_000, 128, repeats=1)


def many_rollbacks(store: MemoryStore, size: Size) -> Iterator[Operation]:
    """Very many rollbacks in one session, with a turn after each."""
    name = "rollbacks"
    store.add_messages(name, turn(0, 20))
    snapshot = store.save_snapshot(name)
    for number in range(size.rollbacks):
        store.add_messages(name, turn(number))
        store.rollback_to_snapshot(name, snapshot)
    yield Operation("append a turn", lambda: store.add_messages(name, turn(1)), 20)
    yield Operation("read the latest 20", lambda: store.get_history(name, limit=20), 10)
    yield Operation("rollback, and undo", lambda: _there_and_back(store, name, snapshot.id), 40)
    yield Operation("undo", lambda: _there_and_back(store, name, snapshot.id), 40)
    yield Operation("fork", lambda: _forked(store, name), 500)
    yield Operation("compact", lambda: store.compact(name), 20_000, 64, repeats=1)
    yield Operation("read the latest 20, compacted", lambda: store.get_history(name, limit=20), 10)


def large_messages(store: MemoryStore, size: Size) -> Iterator[Operation]:
    """Messages as large as may be."""
    message = ChatMessage("user", "x" * size.message_bytes)
    store.add_messages("large", [message])
    yield Operation("append one", lambda: store.add_messages("large", [message]), 5_000, 160, repeats=3)
    yield Operation("read the latest one", lambda: store.get_history("large", limit=1), 2_000, 128, repeats=3)
    yield Operation("append a small turn beside it", lambda: store.add_messages("small", turn(1)), 50)


def _there_and_back(store: MemoryStore, name: str, snapshot: str) -> None:
    store.rollback_to_snapshot(name, snapshot)
    store.undo(name)


def _erased(store: MemoryStore, *names: str) -> None:
    for name in names:
        store.erase(name)


def _forked(store: MemoryStore, name: str) -> None:
    store.fork(name, "forked")
    store.erase("forked")


PARTS = (one_long_session, many_sessions, many_snapshots, many_rollbacks, large_messages)


# --- measuring -------------------------------------------------------------------------------------------------------


def peak_of(run: Callable[[], object]) -> tuple[float, float | None]:
    """Seconds of a call, and mebibytes of this process beyond those it had. None where the system does not say."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    peak = _memory("VmHWM")
    return seconds, None if before is None or peak is None else max(0.0, peak - before)


def _memory(name: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def measured(part: Callable[[MemoryStore, Size], Iterator[Operation]], store: MemoryStore, size: Size) -> int:
    """Print a table for one part. Returns the number of rows that are out of their bounds."""
    out = 0
    start = time.perf_counter()
    print(f"\n{(part.__doc__ or '').rstrip('.')}\n")
    print("| operation | median | worst | bound | memory | bound | |\n|---|---|---|---|---|---|---|")
    for operation in part(store, size):
        try:
            taken = [peak_of(operation.run) for _ in range(operation.repeats)]
        except everturn.MemoryStoreError as exc:
            out += 1
            print(f"| {operation.name} | {type(exc).__name__}: {exc} | | | | | OUT |", flush=True)
            continue
        median = statistics.median(seconds for seconds, _ in taken) * 1000
        worst = max(seconds for seconds, _ in taken) * 1000
        memory = max((mebibytes or 0.0) for _, mebibytes in taken)
        holds = worst <= operation.milliseconds and memory <= operation.mebibytes
        out += not holds
        times = f"{median:,.1f} ms | {worst:,.1f} ms | {operation.milliseconds:,.0f} ms"
        memories = f"{memory:,.0f} MiB | {operation.mebibytes:,.0f} MiB"
        print(f"| {operation.name} | {times} | {memories} | {'' if holds else 'OUT'} |", flush=True)
    print(f"\n{time.perf_counter() - start:,.0f} s with the filling", flush=True)
    return out


def steady(store: MemoryStore, size: Size, minutes: float) -> int:
    """Append a day's turns, one a second, at a steady rate within so many minutes, and read before each.

    Prints the latency of the first and the last tenth, and their processor time, which a busy machine alters less.
    Returns 1 if the last takes more than half as much processor time again.
    """
    turns, began = size.day, time.monotonic()
    pace = minutes * 60 / turns
    taken = []
    before = _memory("VmRSS")
    for number in range(turns):
        time.sleep(max(0.0, began + number * pace - time.monotonic()))
        name = f"steady-{number % 1000}"
        start, used = time.perf_counter(), time.process_time()
        store.get_history(name, limit=20)
        store.add_messages(name, turn(number), key=f"request-{number}")
        taken.append((time.perf_counter() - start, time.process_time() - used))
    tenth = turns // 10
    parts = {"first tenth": taken[:tenth], "last tenth": taken[-tenth:]}
    print(f"\nA day of turns, {turns:,} in {minutes:g} minutes, on 1,000 sessions\n")
    print("| | median | p99 | worst | processor time of the client, median |\n|---|---|---|---|---|")
    work = {name: statistics.median(used for _, used in some) for name, some in parts.items()}
    for name, some in parts.items():
        seconds = [clock for clock, _ in some]
        figures = statistics.median(seconds), percentile(seconds, 0.99), max(seconds), work[name]
        print(f"| {name} | " + " | ".join(f"{figure * 1000:,.2f} ms" for figure in figures) + " |")
    print(f"\nmemory of the client: {before or 0:,.0f} MiB before, {_memory('VmRSS') or 0:,.0f} MiB after", flush=True)
    return work["last tenth"] > 1.5 * work["first tenth"]


@contextmanager
def place(backend: str) -> Iterator[str]:
    """Yield the URL of a new place."""
    if backend == "sqlite":
        with tempfile.TemporaryDirectory(prefix="everturn-scale-") as folder:
            yield f"sqlite:///{folder}/scale.db"  # four slashes: the folder is absolute
    else:
        with valkey_server() if backend == "redis" else postgres_server() as server:
            yield f"{server.url}?warnings=false" if "?" not in server.url else f"{server.url}&warnings=false"


def main() -> int:
    """Return 1 if a row is out of its bounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=("sqlite", "redis", "postgres"), metavar="BACKEND")
    parser.add_argument("--parts", nargs="+", choices=[part.__name__ for part in PARTS], metavar="PART")
    parser.add_argument("--small", action="store_true", help="a hundredth of everything")
    parser.add_argument("--steady", type=float, metavar="MINUTES", help="a day's turns too, within so many minutes")
    arguments = parser.parse_args()
    size = Size().divided(100) if arguments.small else Size()
    out = 0
    for backend in arguments.only or ("sqlite", "redis", "postgres"):
        print(f"\n## {backend}", flush=True)
        for part in PARTS:
            if arguments.parts and part.__name__ not in arguments.parts:
                continue
            with place(backend) as url, everturn.open(url, timeout=TIMEOUT) as store:
                out += measured(part, store, size)
        if arguments.steady:
            with place(backend) as url, everturn.open(url, timeout=TIMEOUT) as store:
                out += steady(store, size, arguments.steady)
    print(f"\n{out} rows are out of their bounds" if out else "\nall rows are within their bounds")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
