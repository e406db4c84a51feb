"""Owns what snapshot_db does at each moment of a pytest run."""

from __future__ import annotations

import pytest

NAME = "everturn-snapshot-db"
_MARK = "snapshot_db(file, *, start, build, database, mask): the state that the test's SQLite file starts from"


def register(config: pytest.Config) -> None:
    """Take part in this run."""
    config.addinivalue_line("markers", _MARK)
    config.pluginmanager.register(Hooks(), NAME)


class Hooks:
    """The hooks of one run."""
