"""The command line of snapshot_db: `--snapshot-update`, often shared with other plugins, and `--snapshot-db-ci`.

Decides whether artifacts may be written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import argparse

FLAG = "--snapshot-update"
CI_FLAG = "--snapshot-db-ci"
_OWN_DEST = "snapshot_db_update"
_DEST: pytest.StashKey[str] = pytest.StashKey()


def add(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the flag that is ours alone. The shared one is added later, after every other plugin has added its own."""
    group(parser).addoption(
        CI_FLAG, action="store_true", help=f"let {FLAG} write the artifacts of snapshot_db in CI too, where CI is set"
    )
    if _named_in_a_conftest(pluginmanager):
        # Too late for pytest_load_initial_conftests: it is running.
        config = pluginmanager.get_plugin("pytestconfig")
        if isinstance(config, pytest.Config):
            share_update_flag(parser, config)


def group(parser: pytest.Parser) -> pytest.OptionGroup:
    return parser.getgroup("everturn", "everturn (snapshot_db, memory contracts)")


def _named_in_a_conftest(pluginmanager: pytest.PytestPluginManager) -> bool:
    files = (getattr(plugin, "__file__", None) or "" for plugin in pluginmanager.get_plugins())
    return any(Path(file).name == "conftest.py" for file in files)


def share_update_flag(parser: pytest.Parser, config: pytest.Config) -> None:
    """Use another plugin's --snapshot-update if there is one (syrupy, pytest-snapshot), else add it.

    If two plugins add it, every run ends with an argparse error. So we come last, and look.
    """
    dest = _dest_of_flag(parser)
    if dest is None:
        dest = _OWN_DEST
        group(parser).addoption(
            FLAG, action="store_true", dest=dest, help="write the artifacts of snapshot_db that are missing or differ"
        )
    config.stash[_DEST] = dest


def _dest_of_flag(parser: pytest.Parser) -> str | None:
    """Find the option under which another plugin stores the flag; None if there is none. pytest has no list of options,
    so it is found by parsing with and without it."""
    without, _ = parser.parse_known_and_unknown_args([])
    given, unknown = parser.parse_known_and_unknown_args([FLAG])
    if FLAG in unknown:
        return None
    return next(name for name, value in vars(given).items() if value != _value(without, name))


def _value(namespace: argparse.Namespace, name: str) -> object:
    return getattr(namespace, name, None)


def is_update_asked_for(config: pytest.Config) -> bool:
    dest = config.stash.get(_DEST, None)
    return dest is not None and bool(config.getoption(dest, default=False))


def is_update_withheld(config: pytest.Config) -> bool:
    """Whether CI keeps us from writing: nobody has looked at an artifact that a build machine wrote."""
    in_ci = os.environ.get("CI", "").lower() not in {"", "0", "false", "no"}
    return is_update_asked_for(config) and in_ci and not config.getoption("snapshot_db_ci")


def is_updating(config: pytest.Config) -> bool:
    return is_update_asked_for(config) and not is_update_withheld(config)
