"""The cost of a session that was edited often: every operation at 10, 1,000 and 10,000 edits, for any URL.

    python -m benchmarks.many_edits sqlite:////tmp/edits.db --edits 10 1000 10000

A session is made by one of four kinds of edit. In three of them the history stays 22 messages long, whatever the number
of edits: so every operation should cost the same in each column. In the last the history grows with the edits:
operations that return all of it (full read, trim, fork, verify) may cost more, the others may not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import everturn
from everturn import ChatMessage, MemoryStoreError

TURNS = 10  # of two messages, before the first edit
REPEATS = 9
TIMEOUT = 60.0


def _turn(number: int) -> list[ChatMessage]:
    text = f"{number} " + "x" * 190
    return [ChatMessage("user", text), ChatMessage("assistant", text)]


def _began(store: Any, name: str) -> int:
    """Begin a session; returns the seq of its last message."""
    last = 0
    for number in range(TURNS):
        last = store.add_messages(name, _turn(number), key=f"turn-{number}").seqs[-1]
    return last


# --- kinds of edit ---------------------------------------------------------------------------------------------------


def replaces(store: Any, name: str, edits: int) -> None:
    """The last turn is edited again and again."""
    after = _began(store, name)
    for number in range(edits):
        store.replace(name, _turn(number), after=after)


def rollbacks(store: Any, name: str, edits: int) -> None:
    """A rollback to one snapshot, and a turn, again and again."""
    _began(store, name)
    snapshot = store.save_snapshot(name)
    for number in range(edits):
        store.rollback_to_snapshot(name, snapshot)
        store.add_messages(name, _turn(number))


def snapshots(store: Any, name: str, edits: int) -> None:
    """The last turn is edited, and a snapshot taken of it, again and again."""
    after = _began(store, name)
    for number in range(edits):
        store.replace(name, _turn(number), after=after)
        store.save_snapshot(name)


def ranges(store: Any, name: str, edits: int) -> None:
    """Every second message is taken back: the history is one message longer with each edit, and as many ranges."""
    after = _began(store, name)
    for number in range(edits):
        after = store.replace(name, _turn(number), after=after).seqs[0]


KINDS: dict[str, Callable[[Any, str, int], None]] = {
    function.__name__: function for function in (replaces, rollbacks, snapshots, ranges)
}


# --- operations ------------------------------------------------------------------------------------------------------


def operations(store: Any, name: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Each operation, in an order in which none is in the way of the next; and how often to measure it."""
    snapshot = store.save_snapshot(name)
    yield "append", lambda: store.add_messages(name, _turn(1)), REPEATS
    yield "latest 20", lambda: store.get_history(name, limit=20), REPEATS
    yield "full read", lambda: store.get_history(name), REPEATS
    yield "state", lambda: store.state(name), REPEATS
    yield "info", lambda: store.info(name), REPEATS
    near = store.get_history(name, limit=4)[0].seq
    yield "replace near the head", lambda: store.replace(name, _turn(2), after=near), REPEATS
    yield "rollback", lambda: _there_and_back(store, name, snapshot), REPEATS
    yield "undo", lambda: _undone(store, name, snapshot), REPEATS
    yield "snapshot", lambda: store.save_snapshot(name), REPEATS
    yield "list of changes", lambda: store.changes(name, limit=20), REPEATS
    yield "keyed retry", lambda: store.add_messages(name, _turn(3), key="turn-3"), REPEATS
    yield "new key", lambda: store.add_messages(name, _turn(3), key=uuid.uuid4().hex), REPEATS
    yield "find", lambda: next(iter(store.find("0 x", session_id=name, limit=1)), None), REPEATS
    yield "fork", lambda: store.fork(name, f"{name}-{uuid.uuid4().hex}"), 3
    yield "trim", lambda: store.trim(name, max_messages=12), 3
    yield "verify", lambda: store.verify(name), 1
    yield "compact", lambda: store.compact(name), 1
    yield "latest 20, compacted", lambda: store.get_history(name, limit=20), REPEATS
    yield "clear", lambda: (store.clear(name), store.add_messages(name, _turn(4))), 3
    yield "erase", lambda: store.erase(name), 1


def _there_and_back(store: Any, name: str, snapshot: Any) -> None:
    store.rollback_to_snapshot(name, snapshot)
    store.add_messages(name, _turn(5))


def _undone(store: Any, name: str, snapshot: Any) -> None:
    store.rollback_to_snapshot(name, snapshot)
    store.undo(name)


def measure(url: str, kind: str, edits: int) -> dict[str, float | str]:
    """Milliseconds of each operation: the median of several calls, or the error that it ended in."""
    measured: dict[str, float | str] = {}
    with everturn.open(url, timeout=TIMEOUT) as store:
        name = f"{kind}-{edits}-{uuid.uuid4().hex[:8]}"
        start = time.perf_counter()
        KINDS[kind](store, name, edits)
        print(f"{kind}: {edits:,} edits made in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
        for title, run, repeats in operations(store, name):
            seconds = []
            try:
                for _ in range(repeats):
                    start = time.perf_counter()
                    run()
                    seconds.append(time.perf_counter() - start)
            except MemoryStoreError as exc:
                measured[title] = type(exc).__name__
            else:
                measured[title] = statistics.median(seconds) * 1000
    return measured


def table(kind: str, columns: dict[int, dict[str, float | str]]) -> Iterable[str]:
    """The figures of one kind of edit, as lines of Markdown."""
    sizes = list(columns)
    yield f"| {kind}: ms at | " + " | ".join(f"{size:,}" for size in sizes) + " | last / first |"
    yield "|---" * (len(sizes) + 2) + "|"
    for title in columns[sizes[0]]:
        figures = [columns[size][title] for size in sizes]
        first, last = figures[0], figures[-1]
        ratio = f"{last / first:.1f}" if isinstance(first, float) and isinstance(last, float) else ""
        told = [f"{figure:.2f}" if isinstance(figure, float) else figure for figure in figures]
        yield f"| {title} | " + " | ".join(told) + f" | {ratio} |"


def main() -> None:
    """Measure each kind of edit at each size, and print a table for each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_edits", description=__doc__.split("\n")[0])
    parser.add_argument("url", help="where to make the sessions: any URL that everturn.open takes")
    parser.add_argument("--edits", nargs="+", type=int, default=[10, 1_000, 10_000], metavar="N")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        columns = {edits: measure(arguments.url, kind, edits) for edits in arguments.edits}
        print("\n".join(table(kind, columns)) + "\n", flush=True)


if __name__ == "__main__":
    main()
