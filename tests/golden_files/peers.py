"""The plugins that snapshot_db has to live beside, and other pytests, each in a folder of its own under the venv.

They cannot be in the venv itself: syrupy and pytest-snapshot kill each other's runs. pip installs each set once.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

# With `--no-deps`, and with what each needs: pip must not bring a second pytest along.
_XDIST = ("pytest-xdist==3.8.0", "execnet==2.1.2")
_SETS = {
    "pytest8": ("pytest==8.2.2", "pluggy==1.5.0"),
    "pytest9": (),
    "syrupy": ("syrupy==6.1.1",),
    "pytest-snapshot": ("pytest-snapshot==0.9.0",),
    "xdist": _XDIST,
}
MODULES = {"syrupy": "syrupy", "pytest-snapshot": "pytest_snapshot.plugin", "xdist": "xdist"}


def folder(name: str) -> Path | None:
    """Install a set of packages. Returns its folder; None for an empty set. Skips the test if pip cannot get it."""
    requirements = _SETS[name]
    if not requirements:
        return None
    where = Path(sys.prefix) / "everturn-peers" / "+".join(requirements)
    if not where.exists():
        with tempfile.TemporaryDirectory(dir=sys.prefix) as made:
            _install(requirements, Path(made) / "set")
            where.parent.mkdir(exist_ok=True)
            with suppress(OSError):  # another worker was first: its set is as good
                (Path(made) / "set").rename(where)
    return where


def _install(requirements: tuple[str, ...], where: Path) -> None:
    # Pytester moves HOME into the project under test, and what pip asks about the machine leaves files there.
    home = pwd.getpwuid(os.getuid()).pw_dir
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", "install"]
    done = subprocess.run(
        [*command, "--no-deps", "--no-compile", "--target", str(where), *requirements],
        env=os.environ | {"HOME": home},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"pip cannot install {', '.join(requirements)} (no network?), so this was not tried: {done.stderr}")


@dataclass(frozen=True)
class Ran:
    code: int
    text: str

    def count(self, outcome: str) -> int:
        """Count the tests with this outcome, from the last line of the report."""
        words = self.text.strip().splitlines()[-1].replace(",", "").replace("=", "").split()
        return next((int(number) for number, word in pairwise(words) if word.startswith(outcome)), 0)


def run(root: Path, *args: str, plugins: list[str], sets: list[str]) -> Ran:
    """Run pytest on a project in a process of its own, with just these plugins, in this order."""
    folders = [str(each) for each in map(folder, sets) if each is not None]
    # Nothing of the pytest that runs this: syrupy, for one, holds itself for a worker if xdist has left its marks.
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "COLUMNS", "PYTHONPATH") and not name.startswith("PYTEST_")
    }
    env |= {"PYTHONPATH": os.pathsep.join(folders), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    chosen = [word for plugin in plugins for word in ("-p", plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen, *args],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Ran(done.returncode, done.stdout + done.stderr)
