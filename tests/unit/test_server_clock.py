"""The estimate of a server's clock: never ahead, close after a quick reply, right again after the clock was set."""

from __future__ import annotations

import pytest

from everturn.backends._shared.server_clock import DRIFT, REQUEST_LIFE, ServerClock


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
