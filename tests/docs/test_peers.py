"""The page about other stores is in step with the contract and with the factories that reproduce it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from everturn.testing.contract import CLAUSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "peers.md").read_text("utf-8")
ROW = re.compile(r"^\| [^|]+ \| `(\w+):(\w+)`[^|]* \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_every_clause_it_names_is_one() -> None:
    known = {clause.id for clause in CLAUSES}
    findings = re.findall(r"^- (`[^:]+?)(?::| is untested)", PAGE, re.MULTILINE)
    named = {name for line in findings for name in re.findall(r"`([^`]+)`", line) if name[0].islower()}
    assert len(named) > 20
    assert named - known == set()


def test_every_clause_of_the_day_is_counted_once_for_each_store() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) >= 14
    (clauses,) = re.findall(r"contract 1 with its (\d+) clauses", PAGE)
    assert {sum(map(int, counts)) for _, _, *counts in rows} == {int(clauses)}


def test_every_target_it_names_is_a_factory() -> None:
    for module, factory, *_ in ROW.findall(PAGE):
        tree = ast.parse((ROOT / "examples" / "peers" / f"{module}.py").read_text("utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert factory in names, f"{module}:{factory}"
