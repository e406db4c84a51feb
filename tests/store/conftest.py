"""The contract's fixtures: a test that takes `place` or `store` runs for every backend and face.

`@where(shared=True, ...)` keeps it to the places of which that is so. What those that are left out do instead is for
another test to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from tests.store.places import ALL, Clock, File, LoopThread, Place, Servers
from tests.tiers import deep

# Places that prove little beyond another, with the modules that `make test` runs there; `make deep` runs all of them.
# `fakeredis` runs the scripts that `valkey` runs, in Python and ten times as slowly. A cluster runs them, too, and adds
# its routing: what is about several sessions, several nodes or a session's slot. `cluster-async` is the client of
# `valkey-async` with that routing. `dynamodb-async` waits otherwise for what `dynamodb` sends.
# A SQLite database in memory has one connection, and statements of a file.
SOME = {"test_clear", "test_snapshots", "test_turns"}
ROUTED = {
    "test_erase",
    "test_find",
    "test_fork_and_diff",
    "test_isolation",
    "test_sessions",
    "test_surface",
    "test_ttl",
}
REPEATING = {
    "fakeredis": SOME,
    "cluster": SOME | ROUTED | {"test_retries"},
    "cluster-async": SOME,
    "dynamodb-async": SOME | {"test_retries", "test_ttl"},
    "sqlite-memory": SOME | {"test_erase", "test_isolation", "test_sessions", "test_surface", "test_ttl"},
}
# Of a test with many cases, `make test` runs the first one in these places, but for modules in which each case is
# another change. What is awaited sends what the blocking store of its backend sends, and that has all cases, but for
# changes that PostgreSQL gets in one statement. The stand-in for DynamoDB is slower than any server.
FIRST_CASES = 1
FEW_CASES: dict[str, set[str]] = {
    "sqlite-async": set(),
    "valkey-async": set(),
    "postgres-async": {"test_gathered_changes"},
    "dynamodb": {"test_exactly_once", "test_retries"},
}
# Tests that make a thousand changes or more: a stand-in for DynamoDB takes 5 to 30 ms for each.
LONG = {
    "test_a_key_is_remembered_as_long_as_its_turn_can_be_reached",
    "test_a_key_is_remembered_as_long_as_its_turn_is_stored",
    "test_a_key_is_remembered_for_a_thousand_and_twenty_four_changes",
    "test_a_key_of_a_change_without_a_turn_is_remembered_however_many_follow",
    "test_a_key_whose_turn_was_reclaimed_may_write_again",
    "test_compact_changes_nothing_that_can_be_reached",
    "test_the_latest_changes_are_remembered_and_older_ones_forgotten",
    "test_what_was_never_in_the_history_is_not_once_its_change_is_forgotten",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "where(**abilities): run in the places of which this is so")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        wanted = {"reopens": True} if "lasting" in metafunc.fixturenames else {}
        for mark in metafunc.definition.iter_markers("where"):
            wanted |= mark.kwargs
        names = [name for name, place in ALL.items() if all(getattr(place, what) == so for what, so in wanted.items())]
        assert names, f"there is no place for {metafunc.function.__name__}: {wanted}"
        module = metafunc.module.__name__.rpartition(".")[2]
        cases = [name if module in REPEATING.get(name, {module}) else deep(name) for name in names]
        if metafunc.function.__name__ in LONG or module == "test_many_edits":
            cases = [deep(name) if name == "dynamodb" else name for name in cases]
        if all(name in REPEATING for name in names):  # there is no other place for it
            cases = names
        metafunc.parametrize("place", cases, indirect=True)


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the later cases of a test as deep, in the places that have an equal beside them, and on DynamoDB."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        case = getattr(item, "callspec", None)
        place = case.params.get("place") if case is not None else None
        if place in FEW_CASES and item.path.stem not in FEW_CASES[place]:
            seen[place, item.nodeid.partition("[")[0]] += 1
            if seen[place, item.nodeid.partition("[")[0]] > FIRST_CASES:
                item.add_marker(pytest.mark.deep)


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, loop_thread: LoopThread, servers: Servers) -> Iterator[Place]:
    place = ALL[request.param](tmp_path, loop_thread, servers)
    yield place
    place.close()


@pytest.fixture
def store(place: Place) -> Any:
    return place.open()


@pytest.fixture
def lasting(place: Place) -> Place:
    """A place whose stores can be closed and opened again, and that has an editor."""
    return place


@pytest.fixture
def clock(place: Place, store: Any) -> Clock:
    """The clock that `store` goes by; it moves only when the test says so."""
    clock = Clock()
    place.set_clock(store, clock)
    return clock


@pytest.fixture
def one_store() -> Iterator[Any]:
    """A store on one backend, for input that is refused above all of them."""
    with everturn.open("sqlite://") as store:
        yield store


@pytest.fixture
def file(tmp_path: Path, loop_thread: LoopThread, servers: Servers) -> Iterator[File]:
    """A SQLite file behind the blocking face, for what is about the file and not about the face."""
    place = File(tmp_path, loop_thread, servers)
    yield place
    place.close()
