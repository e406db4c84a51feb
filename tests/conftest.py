"""What all tests share: the servers of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.places import Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Those that a test may empty, and must leave as it found them: whole, and with their settings."""
    servers = Servers()
    yield servers
    servers.close()
