"""The pytest plugin of everturn: its options, the fixture `snapshot_db`, and the hooks of each part.

Every pytest run in an environment with everturn loads this file. So it imports nothing heavy, and no driver.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from everturn.testing.golden import hooks as golden_hooks
from everturn.testing.golden import options as golden_options
from everturn.testing.golden.fixture import SnapshotDb
from everturn.testing.pytest import items


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    golden_options.add(parser, pluginmanager)
    items.add_options(golden_options.group(parser))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> Generator[None]:
    yield
    golden_options.share_update_flag(parser, early_config)


def pytest_configure(config: pytest.Config) -> None:
    golden_hooks.register(config)
    items.register(config)


@pytest.fixture
def snapshot_db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SnapshotDb:
    """A SQLite file of the test's own. At the end of the test its content is compared with a golden artifact,
    snapshots/<module>/<test>.sqlite beside the test file; --snapshot-update writes the artifact.

    With `@pytest.mark.snapshot_db("name")` the file starts as a copy of snapshots/name.sqlite.
    """
    return golden_hooks.snapshot_db(request, tmp_path_factory)
