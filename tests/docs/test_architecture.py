"""docs/architecture.md is true: files and functions it names exist, and its picture shows the imports there are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.test_layers import MODULES, imports
from tools import draw_layers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/everturn"
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
FILES = sorted(set(re.findall(r"`([\w./-]+(?:\.(?:py|lua|sql)|/))`", PAGE)))
# `file.py` `function`, and: `function` in `file.sql`
NAMED = sorted(
    {*re.findall(r"`([\w./-]+\.py)` `(\w+)`", PAGE)}
    | {(file, name) for name, file in re.findall(r"`(\w+)` in `([\w./-]+\.(?:py|lua|sql))`", PAGE)}
)
# Named in sentences about every folder of a kind.
IN_EVERY = {"__init__.py", "errors.py", "messages.py", "items.py", "schema/"}
# Modules that are used from below, because they have words only; the page says so.
WORDS = {"everturn.transfer.protocol", "everturn.transfer.session_lines"}


PACKAGES = sorted({path.parent for path in SOURCE.rglob("__init__.py")})
LAST = len(draw_layers.ROWS) - 1  # a row of its own: values, errors and rules know each other


def defined_in(file: Path) -> set[str]:
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        return set(re.findall(r"(?:FUNCTION everturn\.|local function )(\w+)", text))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.walk(ast.parse(text))
    assigned = re.findall(r"^(\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE)
    return {node.name for node in tree if isinstance(node, kinds)} | set(assigned)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_named_exists(name: str) -> None:
    assert name in IN_EVERY or (SOURCE / name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: path.name)
def test_a_package_names_each_of_its_modules(folder: Path) -> None:
    """The docstring of its `__init__` is the map of a folder. A line that begins with a file names one that exists."""
    page = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    modules = {
        path.name
        for path in folder.iterdir()
        if (path.suffix == ".py" and path.stem not in {"__init__", "__main__"}) or (path / "__init__.py").exists()
    }
    left_out = {name for name in modules if not re.search(rf"(?<![\w.]){re.escape(name)}\b", page)}
    gone = {name for name in re.findall(r"^ *(\w+\.py)", page, re.MULTILINE) if not (folder / name).exists()}
    assert not left_out
    assert not gone


def test_the_page_names_functions() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_function_that_is_named_is_in_its_file(file: str, name: str) -> None:
    assert name in defined_in(SOURCE / file)


def layer_of(module: str) -> tuple[int, str] | None:
    """Return the row of the picture that a module stands in, counted from the top, and its box."""
    first = module.split(".")[1:2]
    boxes = {box: row for row, boxes in enumerate(draw_layers.ROWS) for box, *_ in boxes}
    return next(((row, box) for box, row in boxes.items() if first == [box.rstrip("/").removesuffix(".py")]), None)


def test_the_picture_shows_files_and_folders_that_exist() -> None:
    names = [name for row in draw_layers.ROWS for name, *_ in row]
    assert [name for name in names if not (SOURCE / name).exists()] == []
    folders = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    assert folders - set(names) == set()


def test_imports_point_down_in_the_picture() -> None:
    wrong = set()
    for module, path in MODULES.items():
        here = layer_of(module)
        for name in imports(path):
            there = layer_of(name)
            if here is None or there is None or here[1] == there[1] or there[0] > here[0]:
                continue
            if name not in WORDS and (here[0], there[0]) != (LAST, LAST):
                wrong.add((module, name))
    assert wrong == set()


def test_the_picture_is_the_one_that_the_tool_draws() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/draw_layers.py", "--check"], check=False)
    assert done.returncode == 0, "python tools/draw_layers.py draws it anew"


def test_the_index_names_every_decision() -> None:
    index = ROOT / "docs/decisions/README.md"
    linked = set(re.findall(r"\]\((\d[^)#]+)", index.read_text("utf-8")))
    assert sorted({page.name for page in index.parent.glob("[0-9]*.md")} ^ linked) == []
