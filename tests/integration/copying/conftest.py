"""Two places to copy between: `source` and `target` are of any two engines, each empty."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn.backends.redis import moves, staging
from everturn.engine import comparing, copies, ends
from everturn.portable import PortionRequest
from tests.contract.places import ALL, Place, Servers

ENGINES = ("sqlite-file", "valkey", "cluster", "postgres")
PAIRS = [(one, other) for one in ENGINES for other in ENGINES if one != other]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with both runs for all ordered pairs; with one of them, for all engines, beside SQLite in memory."""
    wanted = [name for name in ("source", "target") if name in metafunc.fixturenames]
    if len(wanted) == 2:
        metafunc.parametrize("source, target", PAIRS, indirect=True, ids=["-to-".join(pair) for pair in PAIRS])
    elif wanted:
        metafunc.parametrize(wanted[0], ENGINES, indirect=True)


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


def take_small_steps(patch: Any) -> None:
    """Let a session of a few turns take many portions, and a portion many scripts."""
    patch.setattr(ends, "PortionRequest", partial(PortionRequest, entries=5, changes=7, bytes=700))
    patch.setattr(copies, "AT_ONCE", 3)
    patch.setattr(comparing, "WINDOW", 4)
    patch.setattr(moves, "MOST", 4)
    patch.setattr(moves, "STEP", 3)
    patch.setattr(staging, "STEP", 2)


@pytest.fixture(params=["at-once", "in-small-steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in-small-steps":
        take_small_steps(monkeypatch)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    take_small_steps(monkeypatch)
