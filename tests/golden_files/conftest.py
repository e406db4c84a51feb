"""A small project with tests of its own, run by pytest as its owner would."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from everturn.testing.golden import pytest_run
from everturn.testing.golden.inspector import InspectorProcess

PLUGIN = "everturn.testing.plugin"
_SECONDS = count(1_000_000_000)


class Project:
    """A folder with tests in it. Only our plugin is loaded, unless another is asked for by name."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.root = pytester.path

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        # To Python's cache of bytecode, two texts of one length and one second are the same.
        second = next(_SECONDS)
        os.utime(path, (second, second))
        return path

    def tests(self, text: str, name: str = "test_it.py") -> Path:
        return self.write(name, MEMORY + textwrap.dedent(text))

    def pytest(self, *args: str) -> pytest.RunResult:
        """Run pytest in this process: quick, and as good unless processes or other plugins matter."""
        return self._pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *args)

    def update(self, *args: str) -> pytest.RunResult:
        return self.pytest("--snapshot-update", *args)

    def files(self) -> dict[str, str]:
        """Every file below the root but Python's, with a digest of its content and the time it was changed."""
        return {
            str(
                path.relative_to(self.root)
            ): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }

    def artifacts(self) -> list[str]:
        return [name for name in self.files() if not name.endswith(".py")]


# What the tests in a project have at hand.
MEMORY = """\
import sqlite3
import pytest

def make(path):
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT);"
        "CREATE TABLE snapshots (id TEXT PRIMARY KEY, label TEXT);"
        "INSERT INTO messages (body) VALUES ('hello'), ('world');"
        "INSERT INTO snapshots VALUES ('snap-1', 'first');"
    )
    db.close()

def say(path, *bodies):
    db = sqlite3.connect(path)
    db.executemany("INSERT INTO messages (body) VALUES (?)", [(body,) for body in bodies])
    db.commit()
    db.close()

def wipe(path):
    db = sqlite3.connect(path)
    db.execute("DELETE FROM snapshots")
    db.commit()
    db.close()

"""


class SharedInspector(InspectorProcess):
    """One that outlives the run of a project: to start it takes as long as all that most of them ask of it."""

    def close(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            super().close()  # it died; the next run gets another

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="session")
def shared_inspector() -> Iterator[SharedInspector]:
    inspector = SharedInspector()
    yield inspector
    inspector.end()


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, shared_inspector: SharedInspector) -> Project:
    """A project whose runs in this process share an inspector. (Those of peers.py have their own.)"""
    monkeypatch.setattr(pytest_run, "InspectorProcess", lambda: shared_inspector)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return Project(pytester)


@pytest.fixture
def database(tmp_path: Path) -> Callable[..., Path]:
    """Makes a SQLite file from a script."""
    count = iter(range(1000))

    def make(script: str = "", *, path: Path | None = None) -> Path:
        path = path or tmp_path / f"made-{next(count)}.sqlite"
        db = sqlite3.connect(path)
        db.executescript(script)
        db.commit()
        db.close()
        return path

    return make
