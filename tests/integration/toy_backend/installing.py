"""Installs the example backend as pip would: the package, and beside it the metadata that names its entry point."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from everturn import connect

PROJECT = Path(__file__).parents[3] / "examples" / "backend"
PACKAGE = PROJECT / "everturn_toy"


def metadata() -> dict[str, str]:
    """Return the files that an installer writes, from the project's own pyproject.toml."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [
        line
        for group, names in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        "entry_points.txt": "\n".join(lines) + "\n",
    }


def install(site: Path) -> Path:
    """Install it into a directory that is, or will be, on some interpreter's path."""
    shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = site / "everturn_toy-1.0.dist-info"
    folder.mkdir()
    for name, text in metadata().items():
        (folder / name).write_text(text)
    return site


@contextmanager
def installed(site: Path) -> Iterator[None]:
    """Install it for this process, too, which may have looked for backends before."""
    sys.path.append(str(install(site)))
    connect._known_installed.clear()
    invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        connect._known_installed.clear()
        invalidate_caches()
