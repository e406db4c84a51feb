"""A SQLite file, and a store on it whose disk counts syncs and can be held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everturn
from everturn import MemoryStore
from tests.integration.disks import HeldDisk
from tests.integration.turns import turn, url


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[HeldDisk]:
    with HeldDisk(request.node.name, seconds=0.002) as disk:
        yield disk


@pytest.fixture
def store(path: Path, disk: HeldDisk) -> Iterator[MemoryStore]:
    with everturn.open(url(path), vfs=disk.name, timeout=50) as store:
        store.add_messages("another session", turn("me", 0))  # the connection is open, the file has its tables
        yield store
