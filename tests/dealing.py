"""Puts tests in the order in which the workers of a run are to take them: long ones first, short ones to fill up with.

xdist's worksteal cuts the list into one piece for each worker, and who has ended takes half of what another has left,
from its end. So each piece begins with files whose tests start processes and servers, or wait, and ends with tests
that take milliseconds: a worker that is late has only such tests to give away, and all end together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

SHORT = frozenset({"store", "unit"})  # folders of two thirds of all tests, and a quarter of the time
# Folders whose tests fork children with a framework imported, which takes seconds: one worker does so, and not each.
FRAMEWORKS = frozenset({"adapters", "docs"})
# Files with single tests of ten seconds: they come before all others.
LONGEST = frozenset(
    {
        "test_agreement",
        "test_browser",
        "test_contract",
        "test_demo",
        "test_dynamodb",
        "test_failover",
        "test_runner",
        "test_transcripts",
    }
)


ROOT = Path(__file__).parent


class Dealer:
    """The plugin of a worker: all of them put the tests in the same order."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    @pytest.hookimpl(trylast=True)  # of those that -m and -k leave
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._workers > 1:
            items[:] = dealt(items, self._workers)


def _folder(path: Path) -> str:
    """Name the folder of tests/ that a file is in."""
    return path.relative_to(ROOT).parts[0] if path.is_relative_to(ROOT) else ""


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order the tests for so many workers. Those of a file stay together: they may share what is slow to make."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    short = [item for path, file in files.items() if _folder(path) in SHORT for item in file]
    long = sorted((path for path in files if _folder(path) not in SHORT), key=lambda path: path.stem not in LONGEST)
    others = [path for path in long if _folder(path) not in FRAMEWORKS]
    parts = [[path for path in long if _folder(path) in FRAMEWORKS]]
    parts += [others[number :: workers - 1] for number in range(workers - 1)]
    found: list[pytest.Item] = []
    for number, part in enumerate(parts):
        piece = (len(items) - len(found)) // (workers - number)  # as xdist cuts
        found += [item for path in part for item in files[path]]
        room = max(0, piece - sum(len(files[path]) for path in part))
        found += short[:room]
        del short[:room]
    return found + short
