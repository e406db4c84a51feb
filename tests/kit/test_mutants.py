"""Every broken store is caught by the clauses that name it; every clause is failed by one of them.

`make test` runs so many of them that every clause fails once, and those that take seconds against the clauses that only
they fail. `make deep` runs all. `make mutants` runs the whole matrix: each of them against every clause.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from tests.tiers import deep

BROKEN = sorted(path.stem for path in (Path(__file__).parent / "broken").glob("*.py"))
BUDGET = 30.0
SLOW = {"a_row_at_a_time", "delete_then_insert", "pushes_each_message", "pushes_then_expires", "rollback_row_by_row"}
# Those that a quick run finds with another seed than 1; a whole run takes ten seconds, and finds them with any.
SEEDS = {"reads_in_pages": 2}
NOT_QUICKLY_FOUND = {"a_long_trim_reads_first"}  # by a quick run, whatever its seed is


def caught_by(name: str) -> tuple[str, ...]:
    """Read without importing: target code runs in the kit's workers and nowhere else."""
    tree = ast.parse((Path(__file__).parent / "broken" / f"{name}.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CAUGHT_BY":
            return tuple(eval(ast.unparse(node.value), {}))
    raise AssertionError(f"{name} does not say which clauses catch it")


def covering() -> dict[str, tuple[str, ...]]:
    """Choose broken stores that fail every clause between them, and the clauses to run on each: those left for it.

    Stores that take seconds come last.
    """
    chosen: dict[str, tuple[str, ...]] = {}
    for name in sorted(BROKEN, key=lambda name: (name in SLOW, -len(caught_by(name)))):
        failed = {clause for clauses in chosen.values() for clause in clauses}
        left = tuple(clause for clause in caught_by(name) if clause not in failed)
        if left:
            chosen[name] = left
    return chosen


def statuses(name: str, clauses: tuple[str, ...], *, quick: bool) -> dict[str, str]:
    chosen = [Chosen(clause) for clause in CLAUSES if clause.id in clauses]
    seed = SEEDS.get(name, 1)
    with Environment(parse(f"tests.kit.broken.{name}:factory"), seed=seed, quick=quick) as run:
        report = run_all(Runner(run, chosen, budget=BUDGET), chosen)
    return {result.id: f"{result.status} {result.detail}" for result in report.clauses}


KEPT = covering()


CASES = [
    *((name, clauses) for name, clauses in sorted(KEPT.items())),
    *(deep((name, caught_by(name))) for name in BROKEN if KEPT.get(name) != caught_by(name)),
]


@pytest.mark.parametrize(("name", "missing"), CASES, ids=lambda value: value if isinstance(value, str) else len(value))
def test_a_broken_store_is_caught_by_the_clauses_that_name_it(name: str, missing: tuple[str, ...]) -> None:
    found: dict[str, str] = {}
    # A quick run takes one direction of a pair; where that is not enough, both.
    for quick in (False,) if name in NOT_QUICKLY_FOUND else (True, False):
        found |= statuses(name, missing, quick=quick)
        missing = tuple(clause for clause in missing if not found.get(clause, "").startswith("broken"))
        if not missing:
            return
    pytest.fail(f"not caught by {missing}: {found}")


def test_every_clause_is_failed_by_a_broken_store() -> None:
    named = {clause for clauses in KEPT.values() for clause in clauses}
    assert {clause.id for clause in CLAUSES} - named == set()
    assert named - {clause.id for clause in CLAUSES} == set()


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 30
