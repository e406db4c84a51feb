"""Installs the toy backend as pip would: a package, and beside it the metadata that names its entry point."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from everturn import connect

PACKAGE = Path(__file__).parent / "everturn_toy"
METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: everturn-toy\nVersion: 1.0\n",
    "entry_points.txt": "[everturn.backends]\ntoy = everturn_toy\n",
}


def install(site: Path) -> Path:
    """Into a directory that is, or will be, on some interpreter's path."""
    shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = site / "everturn_toy-1.0.dist-info"
    folder.mkdir()
    for name, text in METADATA.items():
        (folder / name).write_text(text)
    return site


@contextmanager
def installed(site: Path) -> Iterator[None]:
    """Have the toy in this process too. (A process looks for backends once; those that start with it need no more.)"""
    sys.path.append(str(install(site)))
    connect._known_installed.clear()
    invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        connect._known_installed.clear()
        invalidate_caches()
