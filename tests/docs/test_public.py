"""The fence: docs/public.md says what is public, and what we show people to copy imports nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from everturn.connect import GROUP

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "everturn"
PAGE = ROOT / "docs" / "public.md"
PUBLIC = re.findall(r"^\| `(everturn[\w.]*)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
SNIPPET = re.compile(r"^```(?:python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A decision is written for whoever works on everturn, and may name any part of it.
PAGES = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.parent.name != "decisions"
]
COPIED = list((ROOT / "examples").rglob("*.py"))


def file_of(module: str) -> Path | None:
    """Return the file of one of our modules, or None if there is no such module."""
    place = SOURCE.joinpath(*module.split(".")[1:])
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


def listed(module: str) -> list[str] | None:
    """Return a module's `__all__`, without importing it or its framework; None if it has none."""
    tree = ast.parse((file_of(module) or PAGE).read_text("utf-8"))
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets)
    ]
    return [str(name) for name in ast.literal_eval(values[0])] if values else None


def imports(code: str) -> Iterator[tuple[str, str | None]]:
    """Yield every module of ours that some code imports, and the name it imports from it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.partition(".")[0] == "everturn")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "everturn":
            yield from ((node.module or "", alias.name) for alias in node.names)


def outside(code: str) -> list[str]:
    """Return what some code imports of ours that is not public."""
    found = []
    for module, name in imports(code):
        if name is not None and f"{module}.{name}" in PUBLIC:
            continue
        if module not in PUBLIC or (name is not None and name not in (listed(module) or ())):
            found.append(module if name is None else f"{module}.{name}")
    return found


def test_the_check_sees_what_is_not_public() -> None:
    code = """
        import everturn, everturn.core.paths
        from everturn import ChatMessage, connect
        from everturn.model import ChatMessage, MESSAGE_FIELDS
        from everturn.testing import servers
        from everturn.testing.kit import Kit
    """
    assert outside(re.sub(r"^ {8}", "", code, flags=re.MULTILINE)) == [
        *("everturn.core.paths", "everturn.connect", "everturn.model.MESSAGE_FIELDS", "everturn.testing.kit.Kit")
    ]


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_says_which_of_its_names_are_public(module: str) -> None:
    assert file_of(module) is not None
    names = listed(module)
    assert names
    assert not [name for name in names if name.startswith("_")]
    if ".adapters." not in module:  # those need their frameworks
        found = import_module(module)
        assert [name for name in names if not hasattr(found, name)] == []


def test_every_adapter_is_public_and_nothing_below_it() -> None:
    adapters = {
        f"everturn.adapters.{place.stem}"
        for place in (SOURCE / "adapters").iterdir()
        if not place.name.startswith("_") and (place.suffix == ".py" or (place / "__init__.py").is_file())
    }
    assert {module for module in PUBLIC if ".adapters." in module} == adapters


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_a_page_imports_what_is_public(page: Path) -> None:
    snippets = SNIPPET.findall(page.read_text("utf-8"))
    assert [name for code in snippets for name in outside(code)] == []


@pytest.mark.parametrize("file", COPIED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_an_example_imports_what_is_public(file: Path) -> None:
    assert outside(file.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_module_that_is_not_public(page: Path) -> None:
    """But for one that is run as a command, and the entry-point group, which has the name of a module."""
    named = set(re.findall(r"(?<!python -m )\beverturn(?:\.\w+)+", page.read_text("utf-8"))) - {GROUP}
    assert [name for name in sorted(named) if file_of(name) and name not in PUBLIC] == []
