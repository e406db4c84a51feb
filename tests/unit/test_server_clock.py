"""The estimate of a server's clock: never ahead, close after a quick reply, right again after the clock was set."""

from __future__ import annotations

import pytest

from everturn.backends._shared.server_clock import DRIFT, REQUEST_LIFE, ServerClock, UnansweredAttempts


def test_nothing_is_known_before_the_first_reply() -> None:
    clock = ServerClock()
    assert not clock.is_known
    with pytest.raises(LookupError):
        clock.at(0.0)


def test_the_estimate_is_never_ahead_of_the_server() -> None:
    clock = ServerClock()
    clock.learn(1000.0, sent=10.0, received=10.5)  # the server showed 1000 somewhere in between
    assert clock.at(10.5) == 1000.0
    assert clock.at(11.5) <= 1001.0


def test_a_quick_reply_is_kept_over_slow_ones() -> None:
    clock = ServerClock()
    clock.learn(1000.0, sent=10.0, received=10.001)
    clock.learn(1001.0, sent=10.5, received=12.0)  # says less than is known
    assert clock.at(12.0) == pytest.approx(1001.999, abs=2 * DRIFT * 2)


def test_a_caller_who_saw_a_change_issues_what_follows_behind_it() -> None:
    clock = ServerClock()
    clock.learn(1000.0, sent=10.0, received=10.2)
    clock.learn(1000.3, sent=10.21, received=10.51)  # the change was made at 1000.3
    assert clock.at(10.51) >= 1000.3


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_was_set_is_followed_at_once(step: float) -> None:
    clock = ServerClock()
    clock.learn(5000.0, sent=10.0, received=10.001)
    clock.learn(5001.0 + step, sent=11.0, received=11.001)
    assert clock.at(11.001) == pytest.approx(5001.0 + step)


def test_a_window_ends_with_the_callers_time_and_never_later_than_requests_live() -> None:
    clock = ServerClock()
    clock.learn(1000.0, sent=10.0, received=10.0)
    assert clock.window(10.0, 15.0) == (1000.0, 1005.0)
    assert clock.window(10.0, 10_000.0) == (1000.0, 1000.0 + REQUEST_LIFE)
    assert clock.window(10.0, 9.0) == (1000.0, 1000.0)


# --- attempts without an answer, and the server that a retry goes to --------------------------------------------------


def clock_at(server_time: float, *, now: float) -> ServerClock:
    clock = ServerClock()
    clock.learn(server_time, sent=now, received=now)
    return clock


def test_a_retry_waits_until_its_servers_clock_has_passed_the_moment_of_the_first_attempt() -> None:
    unanswered = UnansweredAttempts()
    unanswered.add("call", 1000.0, sent=10.0, deadline=13.0)
    other = clock_at(999.0, now=10.1)  # 1.1 s behind the server of the first attempt
    assert unanswered.hold_back("call", other, 10.2)
    assert unanswered.hold_back("call", other, 11.1)
    assert not unanswered.hold_back("call", other, 11.2)


def test_a_retry_waits_no_longer_than_the_first_attempt_can_be_applied() -> None:
    unanswered = UnansweredAttempts()
    unanswered.add("call", 5000.0, sent=10.0, deadline=13.0)
    other = clock_at(1000.0, now=10.1)
    assert unanswered.hold_back("call", other, 13.0)
    assert not unanswered.hold_back("call", other, 13.0 + 2 * 3 * DRIFT)


def test_a_retry_at_the_same_server_and_another_call_wait_for_nothing() -> None:
    unanswered = UnansweredAttempts()
    same = clock_at(1000.0, now=10.0)
    unanswered.add("call", same.at(10.0), sent=10.0, deadline=13.0)
    assert not unanswered.hold_back("call", same, 10.005)
    assert not unanswered.hold_back("another", clock_at(0.0, now=10.0), 10.005)


def test_every_attempt_counts_until_the_call_is_answered() -> None:
    unanswered = UnansweredAttempts()
    unanswered.add("call", 5000.0, sent=10.0, deadline=13.0)
    unanswered.add("call", 1000.0, sent=11.0, deadline=13.0)
    other = clock_at(1002.0, now=11.0)
    assert unanswered.hold_back("call", other, 11.5)
    unanswered.settle("call")
    assert "call" not in unanswered
    assert not unanswered.hold_back("call", other, 11.5)


def test_calls_that_gave_up_are_forgotten() -> None:
    unanswered = UnansweredAttempts()
    for number in range(1000):
        unanswered.add(number, 1000.0, sent=10.0, deadline=13.0)
    assert all(number in unanswered for number in range(1000))
    later = 13.1 + REQUEST_LIFE
    for number in range(1000, 3000):
        unanswered.add(number, 1000.0, sent=later, deadline=later + 3.0)
    assert not any(number in unanswered for number in range(1000))
    assert all(number in unanswered for number in range(1000, 3000))
