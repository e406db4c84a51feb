"""Two places to copy between: `source` and `target` are of any two backends, each empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from tests.integration.copying.small import take_small_steps
from tests.store.places import ALL, Place, Servers
from tests.tiers import deep

BACKENDS = ("sqlite-file", "valkey", "cluster", "postgres", "dynamodb")
PAIRS = [(one, other) for one in BACKENDS for other in BACKENDS if one != other]
# Of the pairs of two servers that cost most, or that repeat another, `make test` runs some: DynamoDB is slow, and a
# cluster runs the scripts of one server. Both are in the circle (circle.py), too.
USUAL = ({"sqlite-file", "dynamodb"}, {"sqlite-file", "cluster"})
RARE = [pair for pair in PAIRS if {"dynamodb", "cluster"} & {*pair} and {*pair} not in USUAL]
CASES = [pytest.param(*pair, id="-to-".join(pair), marks=[pytest.mark.deep] if pair in RARE else []) for pair in PAIRS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with both runs for all ordered pairs; with one of them, for all backends; or for those it names itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    named = {name for mark in marks for name in ([mark.args[0]] if isinstance(mark.args[0], str) else mark.args[0])}
    wanted = [name for name in ("source", "target") if name in metafunc.fixturenames and name not in named]
    if len(wanted) == 2:
        metafunc.parametrize("source, target", CASES, indirect=True)
    elif wanted:
        cases = [deep(name) if name == "cluster" else name for name in BACKENDS]
        metafunc.parametrize(wanted[0], cases, indirect=True)


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as deep what a copy into DynamoDB does at once: in small steps it does more, and takes as long."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        if given.get("steps") == "at-once" and "dynamodb" in given.values():
            item.add_marker(pytest.mark.deep)


def _place(request: pytest.FixtureRequest, folder: Path, servers: Servers) -> Iterator[Place]:
    folder.mkdir()
    place = ALL[request.param](folder, None, servers)  # type: ignore[arg-type]  # none of them needs a loop
    yield place
    place.close()


@pytest.fixture
def beside() -> Iterator[Any]:
    """A store in memory, to copy from or to."""
    with everturn.open("sqlite://") as store:
        yield store


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Place]:
    yield from _place(request, tmp_path / "source", servers)


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Place]:
    yield from _place(request, tmp_path / "target", servers)


@pytest.fixture(params=["at-once", "in-small-steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in-small-steps":
        take_small_steps(monkeypatch.setattr)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    take_small_steps(monkeypatch.setattr)
