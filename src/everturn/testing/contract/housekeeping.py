"""Clauses of housekeeping: what a store does with every so many appends, beside what it does with each.

An append that passes more driver calls than those before it is found while it runs, whatever the number of appends is
after which it comes: it is stopped in what it does more, and others go on, or its process is killed there.
"""

from __future__ import annotations

import msgspec

from everturn.testing.contract.pauses import PATIENCE
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.workers.messages import Done, Paused, Step, Stop

registry = ClauseRegistry("concurrency", since=2)
APPENDS, QUICK_APPENDS = 1_100, 130  # in one session
RECENT = 8  # appends, by which the usual number of driver calls is known
DEPTHS = (1, 5, 2, 9, 3, 16, 7, 4, 24, 12)  # driver calls beyond the usual number, by turns
ENOUGH = 24  # appends that did more


class Watched(msgspec.Struct):
    """An instance of which every append is counted, and stopped if it passes more driver calls than usual."""

    store: Instance
    recent: list[int] = []  # driver calls of the latest appends
    more: int = 0  # appends that did more than usual, of this instance and those before it

    def limit(self) -> int:
        """Choose the driver call to stop at; 0 stops at none."""
        if len(self.recent) < RECENT:
            return 0
        return max(self.recent) + DEPTHS[self.more % len(DEPTHS)]

    def ended(self, calls: int) -> None:
        """Note an append that was not stopped."""
        self.more += len(self.recent) == RECENT and calls > max(self.recent)
        self.recent = [*self.recent, calls][-RECENT:]


@registry.clause(
    "every-so-often",
    "An append that also tidies up (every 50th, 100th, 1,000th) takes away nothing that others store, also if killed.",
    incident="A log that is rewritten after every hundredth line, without the lock: what came in meanwhile is gone.",
    needs=["appends", "processes"],
    weight=3,
)
def every_so_often(kit: Kit) -> None:
    session, other = kit.session(), kit.open("other")
    watched = Watched(kit.open("A", watched=True))
    appends = stopped = killed = 0
    while appends < (QUICK_APPENDS if kit.quick else APPENDS) and stopped + killed < ENOUGH:
        if appends >= QUICK_APPENDS and not kit.time_left():
            break
        appends += 1
        worker = watched.store.worker
        worker.send(watched.store.job(Step("append", session, (kit.turn(),)), stop=Stop(watched.limit())))
        report = kit.any_report(worker)
        if isinstance(report, Done):
            watched.ended(report.stops)
            continue
        assert isinstance(report, Paused)  # noqa: S101 - the worker's protocol
        watched.more += 1
        other.worker.send(other.job(Step("append", session, (kit.turn(),))))
        other.worker.poll(PATIENCE)  # it may have to wait for what the stopped one holds
        if watched.more % 4 == 0:
            killed += 1
            watched.store.kill()
            watched = Watched(kit.open("A", watched=True), more=watched.more)
        else:
            stopped += 1
            worker.resume()
            kit.report(worker, Done)
        kit.report(other.worker, Done)
        other.read(session)
    other.read(session)
    kit.notes.append(f"{appends} appends, of which {stopped} were stopped and {killed} killed in what they did more")
    kit.judge(least=3)
