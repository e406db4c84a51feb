"""What all tests share: the servers of the run, asserts that show their values, a heap that is not looked through."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import dealing, scratch_disk
from tests.tiers import is_quick, only_deep

if TYPE_CHECKING:
    from tests.store.places import Servers

FILES_BEFORE = pytest.StashKey[set[Path]]()
FILES_LEFT = pytest.StashKey[list[str]]()
FAILED = pytest.StashKey[bool]()
SCRATCH = pytest.StashKey[Path]()
_ended = 0  # tests

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


def pytest_configure(config: pytest.Config) -> None:
    """Write into memory; keep one data directory of PostgreSQL for all servers: initdb takes most of a start.

    A worker learns in which order it takes its tests. It collects no garbage before it has them: half a million objects
    are made meanwhile, and to look through them again and again took a quarter of the time.
    """
    if hasattr(config, "workerinput"):
        gc.disable()
        config.pluginmanager.register(dealing.Dealer(config.workerinput["workercount"]))
        return
    if folder := scratch_disk.use():
        config.stash[SCRATCH] = folder
        scratch_disk.bring_postgres(folder)
    if "EVERTURN_POSTGRES_DATA" not in os.environ:
        kept = tempfile.TemporaryDirectory(prefix="everturn-postgres-data-")
        os.environ["EVERTURN_POSTGRES_DATA"] = kept.name
        config.add_cleanup(kept.cleanup)


ROOT = Path(__file__).parents[1]
CACHES = {".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist"}


def files_of_the_tree() -> set[Path]:
    """Whatever lies in the root and below examples/, but for caches of the tools and virtual environments."""
    found = {*ROOT.iterdir(), *(ROOT / "examples").rglob("*")}
    return {
        path for path in found if not path.name.startswith(".venv") and not CACHES & {*path.relative_to(ROOT).parts}
    }


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[FILES_BEFORE] = files_of_the_tree()


@pytest.hookimpl(tryfirst=True)  # before the summary is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run whose tests wrote into the repository: histories of the kit, databases, artifacts."""
    session.config.stash[FAILED] = session.exitstatus != pytest.ExitCode.OK
    before = session.config.stash.get(FILES_BEFORE, None)
    if before is not None and (left := sorted(map(str, files_of_the_tree() - before))):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        session.config.stash[FILES_LEFT] = left


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(SCRATCH, None):
        scratch_disk.leave(folder, keep=config.stash.get(FAILED, True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(FILES_LEFT, None):
        terminalreporter.section("the tests left files in the repository")
        for path in left:
            terminalreporter.write_line(path)


def pytest_runtest_logfinish() -> None:
    """Write down what `make coverage` has seen, now and then: a run that is cut off shall not lose it."""
    global _ended  # noqa: PLW0603 - of this process
    _ended += 1
    coverage = sys.modules.get("coverage")
    if coverage is not None and _ended % 50 == 0 and (measuring := coverage.Coverage.current()) is not None:
        measuring.save()


def pytest_collection_finish() -> None:
    """All that tests import is there by now, and stays: six frameworks, half a million objects. Who collects garbage
    need not look at them each time, as a pytest does that a test runs in this process."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Those that a test may empty, and must leave as it found them: whole, and with their settings."""
    from tests.store.places import Servers

    servers = Servers()
    yield servers
    servers.close()
