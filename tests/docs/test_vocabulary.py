"""Words that left do not come back, and docstrings begin with a verb or a noun. (HOUSE: docs/glossary.md.)"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/everturn"
MODULES = sorted(SOURCE.rglob("*.py"))
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# In names of modules, classes and functions, as a part of the name.
LEFT = {
    *("engine", "engines", "editor", "dossier", "dossiers", "filing", "shelf", "nursery", "subject", "lane", "lanes"),
    *("letter", "letters", "sight", "around", "telling", "wolf", "face", "faces", "keeper", "strangers"),
}
FIRST_WORDS = {"what", "who", "where", "that", "whoever", "which", "how", "why", "those", "see", "whose"}
# In prose, where a reader has no way to know them.
PROSE = re.compile(r"\b(engines?|dossiers?|nursery)\b", re.IGNORECASE)
OTHERS_WORDS = ("chat engine", "create_engine", "_engine", "storage engine", "SQLAlchemy")  # of the frameworks
# Class names that may stand twice: the same part of each backend, as with reads.py and verify.py.
SAME_PART_OF_EACH_BACKEND = {"translated", "CompactionPlan"}
# Short names that nobody takes for each other.
TOLD_APART = {("get", "put"), ("names", "races")}


def parts(name: str) -> set[str]:
    """`_LettersOut` is letters and out."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@cache
def documented(path: Path) -> list[Documented]:
    """The module itself, its classes and its functions. Read once: several tests look at all of them."""
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, Documented)]


def named(path: Path) -> Iterator[str]:
    yield from path.relative_to(SOURCE).with_suffix("").parts
    yield from (node.name for node in documented(path) if not isinstance(node, ast.Module))


def offending(paths: Iterable[Path], look: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Say which files have something that they should not. (A test for each file would take longer than the look.)"""
    return {str(path.relative_to(ROOT)): found for path in paths if (found := look(path))}


def test_no_name_has_a_word_that_left() -> None:
    assert offending(MODULES, lambda path: [name for name in named(path) if parts(name) & LEFT]) == {}


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    def look(path: Path) -> list[str]:
        first = [text.splitlines()[0] for node in documented(path) if (text := ast.get_docstring(node))]
        return [
            line
            for line in first
            if line.split()[0].lower().strip("`,.:") in FIRST_WORDS or line.startswith("The same")
        ]

    assert offending(MODULES, look) == {}


def test_prose_has_no_word_that_left() -> None:
    def look(path: Path) -> list[str]:
        lines = path.read_text("utf-8").splitlines()
        return [line for line in lines if PROSE.search(line) and not any(word in line for word in OTHERS_WORDS)]

    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert offending([*pages, *MODULES], look) == {}


def edits(one: str, other: str) -> int:
    """Count the letters to put in, take away or replace until one name is the other."""
    row = list(range(len(other) + 1))
    for up, letter in enumerate(one, 1):
        before, row = row, [up]
        for across, wanted in enumerate(other, 1):
            row.append(min(before[across] + 1, row[-1] + 1, before[across - 1] + (letter != wanted)))
    return row[-1]


def test_no_two_modules_of_a_folder_differ_by_two_letters() -> None:
    assert (edits("marks", "masks"), edits("lines", "line"), edits("reads", "reader")) == (1, 1, 2)
    for folder in {path.parent for path in MODULES}:
        names = sorted(path.stem for path in folder.glob("*.py"))
        twins = [pair for pair in combinations(names, 2) if edits(*pair) <= 2 and pair not in TOLD_APART]
        assert twins == [], folder


def test_no_two_classes_have_the_same_name() -> None:
    """Whoever searches for a class finds one. An underscore in front does not tell two apart."""
    found = defaultdict(list)
    for path in MODULES:
        for node in documented(path):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(path.relative_to(SOURCE))
    twins = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert {name for name in twins if name not in SAME_PART_OF_EACH_BACKEND} == set(), twins
    for name in SAME_PART_OF_EACH_BACKEND:
        assert {path.parts[0] for path in twins[name]} == {"backends"}, twins[name]
        assert len({path.parts[1] for path in twins[name]}) == len(twins[name]), twins[name]
