"""Runs clauses on a target in the tests of the kit."""

from __future__ import annotations

from typing import Any

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import Runner, run_all
from everturn.testing.kit.selection import chosen
from everturn.testing.kit.target import parse
from everturn.testing.results import ClauseResult, RunReport


def report(target: str, *names: str, seed: int = 1, budget: float = 30.0, known: Any = None, **how: Any) -> RunReport:
    clauses = chosen(CLAUSES, names)
    text = target if "://" in target or target.startswith("examples.") else f"tests.{target}"
    with Environment(parse(text), seed=seed, quick=how.pop("quick", True)) as run:
        return run_all(Runner(run, clauses, budget=budget, known=known, **how), clauses)


def result(target: str, name: str, **how: Any) -> ClauseResult:
    (found,) = report(target, name, **how).clauses
    return found
