"""What tests of adapters do alike: run the contract kit or an agent in a process, show what was written, import an
adapter without its framework, and look at what a framework's class has."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from types import FunctionType
from typing import Any

from everturn.testing.contract import CLAUSES

ROOT = Path(__file__).parents[2]

WITHOUT = """
import importlib, importlib.metadata as metadata, sys
found = {found!r}
def version(name):
    if name not in found:
        raise metadata.PackageNotFoundError(name)
    return found[name]
metadata.version = version
importlib.import_module({module!r})
"""


def check(target: str, report: Path, *options: str) -> Any:
    """The report of `everturn check --quick` on `tests.adapters.<target>`, of which every clause held."""
    script = "from everturn.cli import main; main()"
    words = ["check", f"tests.adapters.{target}", "--quick", "--json", str(report), *options]
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


def clauses(layers: Collection[str], *, without: Collection[str] = ()) -> list[str]:
    """The options that choose the clauses of these layers, without some."""
    chosen = [clause.id for clause in CLAUSES if clause.layer in layers and clause.id not in without]
    return [word for clause in chosen for word in ("--clause", clause)]


def ask(worker: str, url: str, question: str) -> dict[str, Any]:
    """What `tests.adapters.<worker>` tells, in a process of its own, when an agent was asked."""
    command = [sys.executable, "-m", f"tests.adapters.{worker}", url, question]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def refusal(module: str, found: dict[str, str]) -> str:
    """What importing an adapter says where the frameworks that are installed are these, by name and version."""
    script = WITHOUT.format(found=found, module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr


def needs(extra: str) -> list[str]:
    """What an extra of ours installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named: list[str] = project["optional-dependencies"][extra]
    return named


def attributes(kind: type) -> set[str]:
    """The names of what a class itself has for others beside methods: properties, values, and fields it declares."""
    methods = FunctionType | classmethod | staticmethod
    values = {name for name, value in vars(kind).items() if not isinstance(value, methods)}
    return {name for name in values | set(inspect.get_annotations(kind)) if not name.startswith("_")}


def shows(url: str, session_id: str, *words: str) -> None:
    """`everturn show` tells these words, in this order."""
    command = [sys.executable, "-c", "from everturn.cli import main; main()", "show", url, session_id]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    place = 0
    for word in words:
        place = shown.find(word, place)
        assert place >= 0, f"{word!r} is not where it should be in\n{shown}"
