"""The judge of leases alone: rows that a test writes by hand, and what is found in them."""

from __future__ import annotations

import pytest

from everturn.store.lease_holder import LeaseHolder, lease_lost
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.leases import LeaseRow, LeaseRules, Served
from tests.simulation.network import Attempt
from tests.simulation.records import Record
from tests.simulation.scheduler import Scheduler
from tests.simulation.schedules import Op

LIFE = ("life", 1)
TAKE = Op(1, "lease", "a", 0.0, seconds=1.0)
OTHER = Op(2, "lease", "a", 0.0, seconds=1.0)
APPEND = Op(3, "append", "a", 0.0, values=("x",), lease=1)
RELEASE = Op(4, "release", "a", 0.0, of=2)


class LeasedSession:
    """A session with two workers, whose lease a test writes."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.row: LeaseRow | None = None
        self.kinds: list[str] = []
        clock = Clock(EPOCH)
        self.rules = LeaseRules(
            lambda: self.scheduler.now,
            clock.at,
            clock.steps_between,
            lambda kind, *_: self.kinds.append(kind),
            lambda _: self.row,
        )
        self.rules.holders = {1: LeaseHolder("a", 1.0, "1"), 2: LeaseHolder("a", 1.0, "2")}
        self.rules.holders[1]._token = 1
        self.host = Host(self.scheduler, "process 1", Clock(0.0), clock)

    def lease(self, token: int, call: int, until: float) -> LeaseRow:
        return LeaseRow(token, self.rules.holders[call]._holder, EPOCH + until if until else 0.0)

    def serve(self, op: Op, at: float, row: LeaseRow | None, *, changes: bool = False) -> None:
        """Carry out a request at a moment; behind it the row is this one."""
        self.scheduler.now = at
        before, self.row = self.rules.note("a"), row
        after = ("life", 2) if changes else LIFE
        attempt = Attempt(op, self.host, "1", at, at + 1)
        self.rules.served(attempt, "a", Served(before, LIFE, after), is_over=False)


@pytest.fixture
def session() -> LeasedSession:
    session = LeasedSession()
    session.serve(TAKE, 0.0, session.lease(1, 1, 1.0))
    assert session.kinds == []
    return session


@pytest.mark.parametrize(
    ("op", "at", "row", "kinds"),
    [
        (OTHER, 1.1, (2, 2, 2.1), []),
        (OTHER, 0.9, (2, 2, 1.9), ["two holders"]),
        (OTHER, 1.1, (1, 2, 2.1), ["token twice"]),
        (OTHER, 1.1, (0, 2, 2.1), ["token fell"]),
        (RELEASE, 0.5, (1, 1, 0), ["lease of another"]),
        (APPEND, 0.5, (1, 1, 2.0), ["lease touched"]),
        (APPEND, 0.5, (1, 1, 1.0), []),
    ],
)
def test_a_request_moves_a_lease_only_as_it_may(
    session: LeasedSession, op: Op, at: float, row: tuple[int, int, float], kinds: list[str]
) -> None:
    session.serve(op, at, session.lease(*row))
    assert session.kinds == kinds


@pytest.mark.parametrize(
    ("row", "at", "kinds"),
    [
        ((1, 1, 1.0), 0.5, []),
        ((1, 1, 1.0), 1.1, ["fence broken"]),
        ((2, 2, 2.1), 1.2, ["fence broken"]),
        ((2, 1, 2.1), 1.2, ["fence broken"]),
        ((1, 1, 0), 0.5, ["fence broken"]),
    ],
)
def test_a_change_is_made_only_with_the_lease_that_is_in_force(
    session: LeasedSession, row: tuple[int, int, float], at: float, kinds: list[str]
) -> None:
    session.row = session.lease(*row)
    session.serve(APPEND, at, session.row, changes=True)
    assert session.kinds == kinds


@pytest.mark.parametrize(("begin", "kinds"), [(0.2, ["refused for nothing"]), (0.7, [])])
def test_a_lease_that_is_in_force_all_the_time_is_not_lost(
    session: LeasedSession, begin: float, kinds: list[str]
) -> None:
    refused = Record(APPEND, "process 1", begin, begin + 1, begin + 0.5, "refused", error=lease_lost("a", 1))
    session.rules.answered(refused, is_over=False)
    assert session.kinds == kinds
