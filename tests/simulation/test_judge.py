"""The judge alone: the cases that it tolerates, and cases that are only like them, which it finds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from everturn import InvalidInput, MemoryStoreBackendError
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.judge import Judge
from tests.simulation.network import Attempt
from tests.simulation.records import FORGOTTEN, MISLED, OTHER_CLOCK, REPEATED, SET_BACK, Record, Stored
from tests.simulation.scheduler import Scheduler
from tests.simulation.schedules import Op

LIFE = 0.5  # seconds, of a request
TURN = Op(1, "append", "a", 0.0, values=("x",))
ERASURE = Op(2, "erase", "a", 0.0)
NO = InvalidInput("no", path="text")
OTHER_TURN = Op(3, "append", "a", 0.0, values=("y",))
OTHER_SHOWN: Stored = ("another life", 1, ((1, "y"),))
SHOWN: Stored = ("life", 1, ((1, "x"),))


class JudgedSession:
    """A judge with a server's clock, and a session that a test changes by hand."""

    def __init__(self, ttl: float | None = None) -> None:
        self.scheduler = Scheduler()
        self.clock = Clock(EPOCH)
        self.stored: Stored | None = None
        self.judge = Judge(
            ttl, lambda: self.scheduler.now, self.clock.at, lambda _: self.stored, self.clock.steps_between
        )

    def call(
        self, op: Op, outcome: str, *, begin: float, end: float, error: Exception | None = None, host: str = "process 1"
    ) -> Attempt:
        """A call that was made and answered; what comes of its request is up to the test."""
        self.judge.records[op.id] = Record(op, host, begin, begin + LIFE, end, outcome, error=error)
        sender = Host(self.scheduler, host, Clock(0.0), Clock(EPOCH))
        return Attempt(op, sender, f"{op.id} change 1", begin, begin + LIFE)

    def apply(self, attempt: Attempt, at: float, stored: Stored | None, *, continues: bool = True) -> None:
        self.scheduler.now, self.stored = at, stored
        attempt.arrivals += 1
        self.judge.applied(attempt, "a", continues=continues)

    def lose_all(self, at: float) -> None:
        self.scheduler.now, self.stored = at, None
        self.judge.load(0.0, None)

    def found(self) -> set[str]:
        self.judge.finish()
        return {finding.kind for finding in self.judge.findings}


@pytest.mark.parametrize(
    ("seconds", "kinds"),
    [
        (-2 * LIFE, {SET_BACK}),
        (-3600.0, {"appeared"}),
        (-LIFE / 2, {"appeared"}),
        (0.0, {"appeared"}),
        (5.0, {"appeared"}),
    ],
)
def test_what_was_refused_may_be_applied_only_by_a_clock_set_back_by_more_than_its_life_and_less_than_its_age(
    seconds: float, kinds: set[str]
) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "refused", begin=0.0, end=0.2, error=NO)
    bench.clock.step(1.0, seconds)
    bench.judge.relaxed_from = 1.0  # as the worlds do for any step back
    bench.apply(attempt, 1.4, SHOWN)
    assert bench.found() == kinds


def test_a_clock_set_back_before_a_request_was_sent_excuses_nothing() -> None:
    bench = JudgedSession()
    bench.clock.step(1.0, -3600.0)
    bench.judge.relaxed_from = 1.0
    attempt = bench.call(TURN, "refused", begin=1.1, end=1.2, error=NO)
    bench.apply(attempt, 1.4, SHOWN)
    assert bench.found() == {"appeared"}


@pytest.mark.parametrize(
    ("at", "kinds"), [(0.205, {REPEATED}), (LIFE - 0.1, {REPEATED}), (LIFE + 0.1, {"late", "appeared"})]
)
def test_a_refusal_may_be_repeated_and_applied_within_its_requests_life(at: float, kinds: set[str]) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "refused", begin=0.0, end=0.2, error=NO)
    attempt.arrivals = 1  # it came, and was refused
    bench.apply(attempt, at, SHOWN)
    assert bench.found() == kinds


@pytest.mark.parametrize(("at", "kinds"), [(LIFE - 0.1, set()), (LIFE + 0.1, {"late"})])
def test_a_request_that_comes_twice_may_bring_back_what_its_server_lost_within_its_life(
    at: float, kinds: set[str]
) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.02)
    bench.apply(attempt, 0.01, SHOWN)
    bench.lose_all(0.1)
    bench.apply(attempt, at, SHOWN)
    assert bench.found() == kinds


@pytest.mark.parametrize(
    ("key", "at", "kinds"),
    [("k", LIFE - 0.1, set()), ("k", LIFE + 0.2, {"late"}), ("other", LIFE - 0.1, {"late", "not done"})],
)
def test_a_request_that_comes_twice_may_bring_back_the_turn_of_its_key_that_its_server_lost(
    key: str, at: float, kinds: set[str]
) -> None:
    bench = JudgedSession()
    first = replace(TURN, key="k")
    bench.apply(bench.call(first, "ok", begin=0.0, end=0.02), 0.01, SHOWN)
    again = bench.call(replace(first, id=9, key=key), "ok", begin=0.03, end=0.05)
    bench.judge.records[9].result = True
    bench.lose_all(0.1)
    bench.apply(again, at, SHOWN)
    assert bench.found() == kinds


def test_a_request_that_comes_twice_is_doubled_when_nothing_was_lost() -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.02)
    bench.apply(attempt, 0.01, SHOWN)
    bench.apply(attempt, 0.4, ("life", 2, ((1, "x"), (2, "x"))))
    assert bench.found() == {"late", "doubled"}


def test_a_request_that_comes_twice_does_not_bring_back_what_was_lost_behind_an_erasure() -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.02)
    bench.apply(attempt, 0.01, SHOWN)
    bench.lose_all(0.1)
    bench.apply(bench.call(OTHER_TURN, "ok", begin=0.15, end=0.17), 0.16, OTHER_SHOWN)
    bench.apply(bench.call(ERASURE, "ok", begin=0.2, end=0.22), 0.21, None)
    bench.apply(attempt, 0.4, SHOWN)
    assert any("erasure" in kind or "erased" in kind for kind in bench.found())


@pytest.mark.parametrize(
    ("misled", "kind"),
    [("process 1", MISLED), ("process 2", MISLED), ("process 3", "expired early"), ("", "expired early")],
)
def test_a_life_that_ends_early_is_excused_by_a_wrong_clock_of_who_wrote_it_last_or_ended_it(
    misled: str, kind: str
) -> None:
    bench = JudgedSession(ttl=30.0)
    bench.judge.misled = {misled}
    bench.apply(bench.call(TURN, "ok", begin=0.0, end=0.2), 0.1, SHOWN)
    other = bench.call(OTHER_TURN, "ok", begin=1.0, end=1.2, host="process 2")
    bench.apply(other, 1.1, OTHER_SHOWN, continues=False)
    assert bench.found() == {kind}


@pytest.mark.parametrize(
    ("result", "misled", "kind"),
    [((), "process 1", MISLED), ((), "process 3", "wrong read"), (("z",), "process 1", "wrong read")],
)
def test_a_session_that_is_not_seen_is_excused_by_a_wrong_clock_of_who_wrote_it_last(
    result: tuple[str, ...], misled: str, kind: str
) -> None:
    bench = JudgedSession(ttl=30.0)
    bench.judge.misled = {misled}
    bench.apply(bench.call(TURN, "ok", begin=0.0, end=0.2), 0.1, SHOWN)
    bench.call(Op(4, "read", "a", 0.0), "ok", begin=1.0, end=1.2, host="process 2")
    bench.judge.records[4].result = result
    assert bench.found() == {kind}


@pytest.mark.parametrize(("seconds", "kinds"), [(5.0, set()), (1.0, {"appeared"})])
def test_a_session_that_was_over_when_a_retry_was_refused_may_be_there_again_once_the_clock_is_set_back(
    seconds: float, kinds: set[str]
) -> None:
    bench = JudgedSession(ttl=3.0)
    bench.apply(bench.call(TURN, "ok", begin=0.0, end=0.2), 0.1, SHOWN)
    shown: Stored = ("life", 2, ((1, "x"), (2, "y")))
    bench.apply(bench.call(OTHER_TURN, "refused", begin=0.2, end=0.6, error=NO), 0.3, shown)
    bench.clock.step(0.4, seconds)
    bench.clock.step(0.8, -seconds)
    bench.judge.relaxed_from = bench.scheduler.now = 0.8
    assert bench.found() == kinds


# --- two servers, each with a clock of its own: to the judge a failover is a step of the store's clock ----------------


def taken_over(bench: JudgedSession, at: float, ahead: float) -> None:
    """Another server takes over, whose clock is ahead of the one before, or behind it."""
    bench.clock.step(at, ahead)


@pytest.mark.parametrize(
    ("behind", "kinds"),
    [(0.2, {OTHER_CLOCK}), (1431.0, {OTHER_CLOCK}), (0.05, {"late", "doubled"}), (0.0, {"late", "doubled"})],
)
def test_a_change_by_a_server_whose_clock_is_behind_a_requests_own_hides_that_the_request_is_late(
    behind: float, kinds: set[str]
) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.02)
    attempt.issued = bench.clock.at(0.0)
    bench.apply(attempt, 0.01, SHOWN)
    taken_over(bench, 0.05, -behind)
    both: Stored = ("life", 2, ((1, "x"), (2, "y")))
    bench.apply(bench.call(OTHER_TURN, "ok", begin=0.08, end=0.12), 0.1, both)
    taken_over(bench, 0.2, behind)
    bench.apply(attempt, 0.4, ("life", 3, (*both[2], (3, "x"))))
    assert bench.found() == kinds


def test_a_retry_that_another_server_carried_out_by_an_earlier_time_is_found_to_be_doubled() -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.12)
    attempt.issued = bench.clock.at(0.0)
    taken_over(bench, 0.05, -1431.0)
    bench.apply(attempt, 0.1, SHOWN)  # its caller has to wait until this server's time is later
    taken_over(bench, 0.2, 1431.0)
    bench.apply(attempt, 0.4, ("life", 2, ((1, "x"), (2, "x"))))
    assert bench.found() == {"late", "doubled"}


@pytest.mark.parametrize(("ahead", "excused"), [(70.0, True), (50.0, False)])
def test_a_tombstone_is_gone_early_only_by_a_clock_that_is_ahead_by_the_life_of_a_request(
    ahead: float, excused: bool
) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.02)
    attempt.issued = bench.clock.at(0.0)
    bench.apply(attempt, 0.01, SHOWN)
    bench.apply(bench.call(ERASURE, "ok", begin=0.05, end=0.07), 0.06, None)
    taken_over(bench, 0.1, ahead)
    taken_over(bench, 0.2, -ahead)
    bench.apply(attempt, 0.4, SHOWN)
    assert bench.found() == ({OTHER_CLOCK, FORGOTTEN} if excused else {"erased came back", "doubled"})


@pytest.mark.parametrize(
    ("behind", "by", "kinds"),
    [
        (1431.0, OTHER_TURN, {OTHER_CLOCK}),
        (0.2, OTHER_TURN, {OTHER_CLOCK}),
        (0.05, OTHER_TURN, {"behind erasure"}),  # its clock shows more than when the request was issued
        (1431.0, TURN, {"behind erasure"}),  # a retry has to wait until this server's time is later
        (1431.0, None, {"behind erasure"}),
    ],
)
def test_a_fence_that_a_server_with_an_earlier_clock_takes_back_hides_that_a_request_is_late(
    behind: float, by: Op | None, kinds: set[str]
) -> None:
    bench = JudgedSession()
    bench.apply(bench.call(OTHER_TURN, "ok", begin=0.0, end=0.02), 0.01, OTHER_SHOWN)
    attempt = bench.call(TURN, "unknown", begin=0.03, end=0.3)
    attempt.issued = bench.clock.at(0.03)
    bench.apply(bench.call(ERASURE, "ok", begin=0.05, end=0.07), 0.06, None)
    taken_over(bench, 0.08, -behind)
    if by is not None:
        bench.scheduler.now = 0.1
        bench.judge.fence_lowered(attempt if by is TURN else bench.call(by, "ok", begin=0.08, end=0.12), "a")
    taken_over(bench, 0.2, behind)
    bench.apply(attempt, 0.4, SHOWN)
    assert bench.found() == kinds


# --- a call that is applied again in another life ---------------------------------------------------------------------


def erased_between(bench: JudgedSession, *, ahead: float = 0.0, outcome: str = "ok") -> set[str]:
    """Apply a call, erase the session, and apply the call again in time; a step of the clock before its second time."""
    bench.apply(bench.call(TURN, outcome, begin=0.0, end=0.4), 0.01, SHOWN)
    bench.apply(bench.call(ERASURE, "ok", begin=0.05, end=0.07), 0.06, None)
    bench.clock.step(0.1, ahead)
    bench.apply(bench.call(TURN, outcome, begin=0.0, end=0.4), 0.3, ("another life", 1, ((1, "x"),)))
    return bench.found()


@pytest.mark.parametrize(("ahead", "kind"), [(0.0, "doubled"), (50.0, "doubled"), (70.0, FORGOTTEN)])
def test_a_retry_that_is_applied_again_behind_an_erasure_is_found_unless_the_tombstone_expired(
    ahead: float, kind: str
) -> None:
    assert erased_between(JudgedSession(), ahead=ahead) == {kind}


def test_a_retry_may_be_applied_again_when_its_server_lost_the_first_time() -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.4)
    bench.apply(attempt, 0.01, SHOWN)
    bench.lose_all(0.1)
    bench.apply(bench.call(ERASURE, "ok", begin=0.15, end=0.17), 0.16, None)
    bench.apply(attempt, 0.3, SHOWN)
    assert bench.found() == set()


@pytest.mark.parametrize(("ttl", "kinds"), [(0.1, set()), (30.0, {"doubled"})])
def test_a_retry_may_be_applied_again_when_its_session_expired(ttl: float, kinds: set[str]) -> None:
    bench = JudgedSession(ttl=ttl)
    attempt = bench.call(TURN, "ok", begin=0.0, end=0.4)
    bench.apply(attempt, 0.01, SHOWN)
    bench.apply(bench.call(ERASURE, "ok", begin=0.2, end=0.22), 0.21, None, continues=ttl > 1)
    bench.apply(attempt, 0.3, SHOWN, continues=False)
    assert bench.found() == kinds


@pytest.mark.parametrize(("arrivals", "kind"), [(1, REPEATED), (0, "appeared")])
def test_a_request_that_a_replica_refused_may_come_again_when_that_is_the_master(arrivals: int, kind: str) -> None:
    bench = JudgedSession()
    error = MemoryStoreBackendError("READONLY", outcome="not_written")
    attempt = bench.call(TURN, "not_written", begin=0.0, end=0.4, error=error)
    attempt.arrivals = arrivals
    bench.apply(attempt, 0.2, SHOWN)
    assert bench.found() == {kind}


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_change_that_was_refused_may_have_been_made_only_if_it_was_lost(is_lost: bool) -> None:
    bench = JudgedSession()
    attempt = bench.call(TURN, "refused", begin=0.0, end=0.4, error=NO)
    bench.apply(attempt, 0.1, SHOWN)
    if is_lost:
        bench.lose_all(0.2)
    assert bench.found() == (set() if is_lost else {"appeared"})
