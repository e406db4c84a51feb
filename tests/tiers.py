"""Says which cases of a test `make test` runs and which are left to `make deep`.

    @pytest.mark.parametrize("seed", first(2, range(10)))     # two in `make test`, ten in `make deep`
    @settings(max_examples=examples(300))                     # a hundred drawn in `make test`, all in `make deep`

A case may be left to `make deep` if `make test` has another of the same promise on the same kind of backend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

# Of the places that the store's tests run in, those that need no server.
QUICK_PLACES = frozenset({"sqlite-file", "toy"})


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases but the first few as `deep`."""
    return [case if number < count else deep(case) for number, case in enumerate(cases)]


def deep(case: Any) -> Any:
    """Mark a case as `deep`; one of several parameters is a tuple of them."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.deep)


def examples(count: int) -> int:
    """Say how many examples a test draws: a third, but for a few, which are all drawn; `make deep` has all of many."""
    return count if os.environ.get("EVERTURN_EXAMPLES") == "all" else max(count // 3, min(count, 15))


def is_quick(item: pytest.Item) -> bool:
    """Tell whether a test starts no server: all of tests/unit, the pure ones of the kit, and the store's in a file."""
    folder = item.path.parent.name
    if folder == "store":
        case = getattr(item, "callspec", None)
        return case is None or case.params.get("place", "sqlite-file") in QUICK_PLACES
    return folder == "unit" or item.path.name.startswith("test_history_")


def only_deep(items: Iterable[pytest.Item]) -> list[str]:
    """Name the tests of which every case is `deep`: `make test` would not show what they promise."""
    kept: dict[str, bool] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        kept[name] = kept.get(name, False) or item.get_closest_marker("deep") is None
    return [name for name, is_kept in kept.items() if not is_kept]
