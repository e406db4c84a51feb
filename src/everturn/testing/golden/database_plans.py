"""Reads the marks `@pytest.mark.snapshot_db(...)` of a test, and refuses wrong ones. Touches no artifact."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.golden import names
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.masks import Mask

MARK = "snapshot_db"
FIXTURE = "snapshot_db"
SIGNATURE = (
    "snapshot_db(file=None, *, start=None, build=None, database=None, mask=(), foreign_keys=True): "
    "what the SQLite file of a test that asks for the fixture snapshot_db starts from. "
    "file: snapshots/FILE.sqlite. start: another test, whose expected file it is. build: a function that makes it"
)

_OPTIONS = ("file", "start", "build", "database", "mask", "foreign_keys")
# [module/]test[parameters][+database][@stage]
_TEST = re.compile(r"(?:([^\[\]/]+)/)?([^@+\[\]/]+(?:\[.*\])?)(?:\+([^@]+))?(?:@(.+))?", re.DOTALL)


@dataclass(frozen=True)
class StartingFile:
    """The artifact that a database starts as, and the function that makes it, if there is one."""

    artifact: Path
    build: Callable[[Path], object] | None = None
    is_test: bool = False


@dataclass(frozen=True)
class DatabasePlan:
    """The marks of one database: its start, its masks."""

    start: StartingFile | None = None
    masks: tuple[Mask, ...] = ()
    foreign_keys: bool = True


@dataclass(frozen=True)
class TestPlan:
    """The databases of a test by name ("" is the unnamed one), and the folder of its artifacts."""

    __test__ = False  # pytest: not a test class

    nodeid: str
    folder: Path
    test: str
    databases: dict[str, DatabasePlan] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The artifact of the test. Names of its stages and named databases begin with its name."""
        return names.artifact(self.folder, test=self.test)

    @property
    def starts(self) -> list[StartingFile]:
        return [plan.start for plan in self.databases.values() if plan.start is not None]


def home_of(artifact: Path) -> Path:
    """Find the home of an artifact: the test's own, without stage and database."""
    stem = artifact.name.removesuffix(names.SUFFIX).partition("@")[0].partition("+")[0]
    return artifact.with_name(stem + names.SUFFIX)


def read(item: pytest.Item) -> TestPlan:
    """Read the marks of a test, its class and its module. The nearest one decides the start; the masks of all apply.

    Raises GoldenError for a wrong mark.
    """
    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    folder = names.module_folder(item.path)
    databases: dict[str, DatabasePlan] = {}
    started: set[str] = set()
    for mark in item.iter_markers(MARK):
        options = _options(mark)
        name = names.given(options["database"]) if options.get("database") else ""
        nearer = databases.get(name, DatabasePlan())
        is_first = name not in started and not options.keys().isdisjoint(("file", "start", "build"))
        started |= {name} if is_first else set()
        databases[name] = DatabasePlan(
            start=_start(options, item.path) if is_first else nearer.start,
            masks=(*_masks(options.get("mask", ())), *nearer.masks),
            foreign_keys=nearer.foreign_keys and bool(options.get("foreign_keys", True)),
        )
    return TestPlan(item.nodeid, folder, "::".join((*classes, item.name)), databases)


def is_stray(item: pytest.Item) -> bool:
    """Whether a test has the mark but not the fixture. (A mark of a module is for the tests that have the fixture.)"""
    return any(mark.name == MARK for mark in item.own_markers) and FIXTURE not in getattr(item, "fixturenames", ())


def _options(mark: pytest.Mark) -> dict[str, Any]:
    if len(mark.args) > 1:
        raise GoldenError(f"the mark snapshot_db takes one file, not {len(mark.args)}: name the rest of {mark.args}")
    options = {**({"file": mark.args[0]} if mark.args else {}), **mark.kwargs}
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise GoldenError(f"the mark snapshot_db has no {', '.join(unknown)}; it has {', '.join(_OPTIONS)}")
    if options.get("file") is not None and options.get("start") is not None:
        raise GoldenError("the mark snapshot_db has both a file and start=: a database starts from one of them")
    if options.get("start") is not None and options.get("build") is not None:
        raise GoldenError(
            "the mark snapshot_db has both start= and build=: another test makes its start, or a function"
        )
    return options


def _masks(masks: str | Iterable[str]) -> list[Mask]:
    columns = (masks,) if isinstance(masks, str) else tuple(masks)
    return [Mask.of(columns)] if columns else []


def _start(options: dict[str, Any], test_file: Path) -> StartingFile | None:
    file, start, build = (options.get(option) for option in ("file", "start", "build"))
    if build is not None:
        if not callable(build):
            raise GoldenError(f"build={build!r} is not a function: give one that takes the path of a new file")
        name = file if file is not None else getattr(build, "__name__", "start")
        # Into the folder that is ours: a file directly in snapshots/ is the user's, and never written.
        return StartingFile(names.module_folder(test_file) / names.given_path(str(name)).name, build)
    if file is not None:
        return StartingFile(test_file.parent / names.FOLDER / names.given_path(str(file)))
    return None if start is None else StartingFile(_artifact_of(start, test_file), is_test=True)


def _artifact_of(start: object, test_file: Path) -> Path:
    """Find the artifact of another test, given as a function or by name: `test_a`, or `module/test_a`."""
    if isinstance(start, str):
        match = _TEST.fullmatch(start)
        if match is None:
            raise GoldenError(f"start={start!r} names no test: say 'test_a', 'test_a[1]', 'module/test_a@stage'")
        module, test, database, stage = match.groups()
        folder = names.module_folder(test_file.with_name(f"{module}.py") if module else test_file)
        return names.artifact(folder, test=test, database=names.given(database) if database else "", stage=stage or "")
    code = getattr(start, "__code__", None)
    if code is None:
        raise GoldenError(f"start={start!r} is no test: give a test function, or the name of one")
    folder = names.module_folder(Path(code.co_filename))
    return names.artifact(folder, test=str(getattr(start, "__qualname__", "")).replace(".", "::"))
