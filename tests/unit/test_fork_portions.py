"""Portions of a fork in SQLite: every seq once, in order, few in each."""

from __future__ import annotations

import pytest

from everturn.backends.sqlite import fork_session
from everturn.backends.sqlite.fork_session import portions


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_session, "PORTION", 10)


def test_ranges_that_fit_stay_as_they_are() -> None:
    assert list(portions([(1, 1, 4), (5, 7, 9)])) == [[(1, 1, 4), (5, 7, 9)]]


def test_nothing_is_divided_into_nothing() -> None:
    assert list(portions([])) == []


def test_a_long_range_is_cut_and_looked_at_from_the_cut() -> None:
    assert list(portions([(3, 5, 26)])) == [[(3, 5, 14)], [(15, 15, 24)], [(25, 25, 26)]]


def test_a_portion_is_filled_by_the_next_range() -> None:
    assert list(portions([(1, 1, 6), (18, 20, 29)])) == [[(1, 1, 6), (18, 20, 23)], [(24, 24, 29)]]


def test_every_seq_is_in_one_portion() -> None:
    ranges = [(first, first, first + length) for first, length in ((1, 0), (5, 30), (50, 9), (60, 19), (100, 1))]
    found = [seq for some in portions(ranges) for _, first, last in some for seq in range(first, last + 1)]
    assert found == [seq for _, first, last in ranges for seq in range(first, last + 1)]
    assert all(sum(last - first + 1 for _, first, last in some) <= 10 for some in portions(ranges))
