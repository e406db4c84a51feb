"""What all tests share: the servers of the run, asserts that show their values, a heap that is not looked through."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tiers import is_quick, only_deep

if TYPE_CHECKING:
    from tests.store.places import Servers

# What tests have in modules beside them shows its values, too. So nothing of it is imported above.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make quick` runs, and see to it that `make deep` alone shows no promise."""
    if not any("::" in word for word in config.args) and (lost := only_deep(items)):
        raise pytest.UsageError(f"marked `deep` in every case, so `make test` does not run them: {', '.join(lost)}")
    for item in items:
        if is_quick(item):
            item.add_marker("quick")


def pytest_collection_finish() -> None:
    """All that tests import is there by now, and stays: six frameworks, half a million objects. Who collects garbage
    need not look at them each time, as a pytest does that a test runs in this process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Those that a test may empty, and must leave as it found them: whole, and with their settings."""
    from tests.store.places import Servers

    servers = Servers()
    yield servers
    servers.close()
