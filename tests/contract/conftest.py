"""The contract's fixtures: `store` runs a test for every engine and face, `lasting` where it can be reopened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from tests.contract.places import ALL, LASTING, Clock, File, LoopThread, Place
from tests.contract.speech import Backdoor


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.stop()


@pytest.fixture(scope="session")
def backdoor() -> Iterator[Backdoor]:
    door = Backdoor()
    yield door
    door.close()


@pytest.fixture(params=list(ALL))
def place(request: pytest.FixtureRequest, tmp_path: Path, loop_thread: LoopThread) -> Iterator[Place]:
    place = ALL[request.param](tmp_path, loop_thread)
    yield place
    place.close()


@pytest.fixture
def store(place: Place) -> Any:
    return place.open()


@pytest.fixture
def one_store() -> Iterator[Any]:
    """A store on one engine, for input that is refused above all of them."""
    with everturn.open("sqlite://") as store:
        yield store


@pytest.fixture
def clock(place: Place, store: Any) -> Clock:
    """The clock that `store` goes by; it moves only when the test says so."""
    clock = Clock()
    place.set_clock(store, clock)
    return clock


@pytest.fixture(params=list(LASTING))
def lasting(request: pytest.FixtureRequest, tmp_path: Path, loop_thread: LoopThread) -> Iterator[File]:
    """A place whose stores can be closed and opened again, also by another process."""
    place = LASTING[request.param](tmp_path, loop_thread)
    yield place
    place.close()


@pytest.fixture
def file(tmp_path: Path, loop_thread: LoopThread) -> Iterator[File]:
    """A SQLite file behind the blocking face, for what is about the file and not about the face."""
    place = File(tmp_path, loop_thread)
    yield place
    place.close()
