"""Writers in processes of their own at one session, on each backend: the time of an append, and requests of DynamoDB.

    python -m benchmarks.contention --backends sqlite redis postgres dynamodb --writers 1 2 8 --turns 240
    python -m benchmarks.contention --delay 10      # as in a network, where writers wait more than they compute

Every writer appends as fast as it can. Every turn is counted afterwards: one that is lost, doubled or torn ends the
program with an error. Rounds of the backends alternate, and the figures are medians of the rounds; `worst` is the
slowest append of all. Seconds of a stand-in say nothing of AWS; requests and the order of the columns do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import everturn
from benchmarks.delayed_link import delayed
from benchmarks.stats import percentile
from everturn import ChatMessage
from everturn.testing.servers import dynamodb_server, postgres_server, valkey_server
from everturn.testing.servers.dynamodb import CREDENTIALS

SESSION = "shared"
TIMEOUT = 60.0


@contextmanager
def _sqlite(_: float) -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryDirectory() as folder:
        yield lambda: f"sqlite:///{Path(folder) / uuid.uuid4().hex}.db"


@contextmanager
def _redis(delay: float) -> Iterator[Callable[[], str]]:
    with valkey_server(appendonly=True, appendfsync="everysec") as server, _link(server.url, delay) as url:
        yield lambda: f"{url}?namespace={uuid.uuid4().hex}"


@contextmanager
def _postgres(delay: float) -> Iterator[Callable[[], str]]:
    with postgres_server() as server, _link(server.url, delay) as url:
        joint = "&" if "?" in url else "?"
        yield lambda: f"{url}{joint}schema=s{uuid.uuid4().hex}"


@contextmanager
def _dynamodb(delay: float) -> Iterator[Callable[[], str]]:
    os.environ |= CREDENTIALS
    with dynamodb_server() as server, _link(server.endpoint, delay) as endpoint:
        yield lambda: server.url_of(f"everturn-{uuid.uuid4().hex}", endpoint)


def _link(url: str, delay: float) -> AbstractContextManager[str]:
    """Reach a server over a link that takes so many seconds longer for a round trip."""
    return delayed(url, delay / 2) if delay else nullcontext(url)


BACKENDS = {"sqlite": _sqlite, "redis": _redis, "postgres": _postgres, "dynamodb": _dynamodb}


@dataclass(frozen=True)
class Round:
    """The seconds of each append of a round, and the requests that DynamoDB got (none: not counted)."""

    seconds: list[float]
    requests: Counter[str]


def run_round(url: str, writers: int, turns: int) -> Round:
    """Let the writers append `turns` turns together. Raises AssertionError if a turn is lost, doubled or torn."""
    with everturn.open(url, timeout=TIMEOUT) as store:
        store.add_messages(SESSION, _turn("first"))
    context = multiprocessing.get_context("spawn")
    reports: Any = context.Queue()
    barrier = context.Barrier(writers)
    each = turns // writers
    started = [context.Process(target=_write, args=(url, at, each, barrier, reports)) for at in range(writers)]
    for writer in started:
        writer.start()
    told = [reports.get(timeout=600) for _ in started]
    for writer in started:
        writer.join()
    with everturn.open(url, timeout=TIMEOUT) as store:
        texts = [str(message.content).split(" ")[0] for message in store.get_history(SESSION)]
    assert texts[::2] == texts[1::2], "a turn is torn"
    wanted = sorted(["first", *(f"{at}/{number}" for at in range(writers) for number in range(each))])
    assert sorted(texts[::2]) == wanted, "turns are lost or doubled"
    requests: Counter[str] = Counter()
    for _, sent in told:
        requests.update(sent)
    return Round([one for seconds, _ in told for one in seconds], requests)


def _turn(mark: str) -> list[ChatMessage]:
    return [ChatMessage(role, f"{mark} " + "x" * 200) for role in ("user", "assistant")]


def _write(url: str, writer: int, turns: int, barrier: Barrier, reports: Any) -> None:
    """Be one writer."""
    taken = []
    with everturn.open(url, timeout=TIMEOUT) as store:
        client = getattr(store._operations.backend, "client", None)
        sent: dict[str, int] = {}
        store.get_history(SESSION, limit=2)  # connections are made before the clock runs
        if hasattr(client, "sent"):
            client.sent = sent
        barrier.wait(timeout=TIMEOUT)
        for number in range(turns):
            messages = _turn(f"{writer}/{number}")
            begun = time.perf_counter()
            store.add_messages(SESSION, messages)
            taken.append(time.perf_counter() - begun)
    reports.put((taken, sent))


def main() -> None:
    """Measure, and print a line for each backend and number of writers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contention", description=__doc__.split("\n")[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), metavar="NAME")
    parser.add_argument("--writers", nargs="+", type=int, default=[1, 2, 8], metavar="N")
    parser.add_argument("--turns", type=int, default=240, help="of all writers together, in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds that a round trip takes longer")
    arguments = parser.parse_args()
    found: dict[tuple[str, int], list[Round]] = {}
    for _ in range(arguments.rounds):
        for name in arguments.backends:
            with BACKENDS[name](arguments.delay / 1e3) as new_url:
                for writers in arguments.writers:
                    found.setdefault((name, writers), []).append(run_round(new_url(), writers, arguments.turns))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for (name, writers), rounds in found.items():
        turns = arguments.turns // writers * writers
        median = statistics.median(statistics.median(each.seconds) for each in rounds)
        late = statistics.median(percentile(each.seconds, 0.99) for each in rounds)
        worst = max(max(each.seconds) for each in rounds)
        asked = statistics.median(each.requests.total() for each in rounds) / turns
        kinds = sum((each.requests for each in rounds), Counter[str]())
        each_kind = {kind: round(count / turns / len(rounds), 2) for kind, count in kinds.most_common()}
        told = f"{name}, {writers} writers: median {median * 1e3:.1f}, p99 {late * 1e3:.0f}, worst {worst * 1e3:.0f} ms"
        print(told + (f"; {asked:.2f} requests a turn, {each_kind}" if asked else ""), flush=True)


if __name__ == "__main__":
    main()
