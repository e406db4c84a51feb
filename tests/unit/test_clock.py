"""A wall clock that steps is not believed; what has expired stays so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everturn.backends._shared.steady_clock import RATE, SLACK, Clock, elapsed


class Hands:
    """Two clocks that a test moves: the wall's, and the time that passed."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.passed = 50.0
        self.clock = Clock(lambda: self.wall, lambda: self.passed)

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


def test_time_that_passes_is_believed() -> None:
    hands = Hands()
    for seconds in (0.001, 1, 3600, 86400):
        hands.go(seconds)
        assert hands.clock.now() == hands.wall


def test_a_step_forward_is_not_believed() -> None:
    hands = Hands()
    hands.wall += 3600
    now, lives_from = hands.clock.read()
    assert now <= 1_000_000 + SLACK
    assert lives_from == hands.wall


def test_a_step_forward_gains_nothing_by_being_looked_at() -> None:
    hands = Hands()
    hands.wall += 3600
    for _ in range(10_000):
        hands.clock.now()
    assert hands.clock.now() <= 1_000_000 + SLACK


def test_after_a_step_that_was_taken_back_the_time_is_right_again() -> None:
    hands = Hands()
    hands.wall += 3600
    hands.clock.now()
    hands.wall -= 3600
    hands.go(10)
    assert hands.clock.read() == (hands.wall, hands.wall)


def test_a_step_back_makes_time_stand_still_and_lives_no_shorter() -> None:
    hands = Hands()
    hands.wall -= 3600
    assert hands.clock.read() == (1_000_000, 1_000_000)


def test_lives_go_on_being_counted_while_a_clock_that_was_set_back_stands_still() -> None:
    """Found by the simulator: the clock is put right again, and another process ended the life 1.8 s too early."""
    hands = Hands()
    hands.wall -= 5
    hands.clock.read()
    hands.go(3)
    assert hands.clock.read()[1] >= 1_000_000 + 3 * (2 - RATE)


def test_a_suspend_is_time_that_passed() -> None:
    hands = Hands()
    hands.go(8 * 3600)  # CLOCK_BOOTTIME counts it, and so does the wall clock
    assert hands.clock.now() == hands.wall


def test_the_elapsed_time_goes_on() -> None:
    first = elapsed()
    assert elapsed() >= first


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e6, 1e6))))
def test_time_never_runs_backwards_nor_further_than_time_has_passed(moves: list[tuple[float, float]]) -> None:
    hands = Hands()
    seen, began = hands.clock.now(), hands.passed
    for passed, step in moves:
        hands.go(passed)
        hands.wall += step
        now, lives_from = hands.clock.read()
        assert seen <= now <= 1_000_000 + (hands.passed - began) * RATE + SLACK + 1e-6
        assert lives_from >= max(now, hands.wall)
        seen = now
