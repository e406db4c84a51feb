"""The order in which tests are given to the workers of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.dealing import ROOT, dealt


class Item(NamedTuple):
    """Stands for a test."""

    path: Path
    name: str


def some(folder: str, file: str, count: int) -> list[Any]:
    return [Item(ROOT / folder / f"{file}.py", f"{file}-{number}") for number in range(count)]


SUITE = [
    *some("adapters/langgraph", "test_values", 4),
    *some("integration", "test_fork", 6),
    *some("integration", "test_closing", 6),
    *some("integration/redis", "test_failover", 2),
    *some("store", "test_turns", 40),
    *some("unit", "test_paths", 14),
]


def pieces(items: list[Any], workers: int) -> list[list[Any]]:
    """Cut the list as xdist's worksteal does."""
    found = []
    for left in range(workers, 0, -1):
        found.append(items[: len(items) // left])
        items = items[len(items) // left :]
    return found


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_begins_with_long_tests_and_ends_with_short_ones(workers: int) -> None:
    order = dealt(SUITE, workers)
    assert sorted(order) == sorted(SUITE)
    for piece in pieces(order, workers):
        short = [item.path.parent.name in {"store", "unit"} for item in piece]
        assert short == sorted(short)
        assert short[-1]


def test_one_worker_has_all_that_import_frameworks() -> None:
    first, *others = pieces(dealt(SUITE, 3), 3)
    assert {item for item in SUITE if "adapters" in item.path.parts} <= {*first}
    assert all("integration" not in item.path.parts for item in first)
    assert all(any("integration" in item.path.parts for item in piece) for piece in others)


def test_the_longest_come_first_and_a_file_stays_together() -> None:
    _, second, third = pieces(dealt(SUITE, 3), 3)
    assert second[0].name == "test_failover-0"
    files = [item.path.stem for item in (*second, *third) if "integration" in item.path.parts]
    assert files == sorted(files, key=files.index)


def test_more_long_tests_than_a_piece_has_room_for_are_not_lost() -> None:
    few = [*some("adapters", "test_values", 30), *some("store", "test_turns", 3)]
    assert sorted(dealt(few, 3)) == sorted(few)
