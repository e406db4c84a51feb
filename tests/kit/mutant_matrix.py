"""Every broken store against every clause: `python -m tests.kit.mutant_matrix [--named] [NAME...]`, or `make mutants`.

Prints what catches what, and which clauses catch a store beside those that name it. With `--named`, only the clauses
that name a store are run on it: minutes instead of hours. Exit code 1 if one is not caught by a clause that names it.
"""

from __future__ import annotations

import sys

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from tests.kit.test_mutants import BROKEN, caught_by

BUDGET = 120.0


def caught(name: str, *, named: bool) -> set[str]:
    chosen = [Chosen(clause) for clause in CLAUSES if not named or clause.id in caught_by(name)]
    with Environment(parse(f"tests.kit.broken.{name}:factory"), seed=1, quick=True) as run:
        report = run_all(Runner(run, chosen, budget=BUDGET), chosen)
    return {result.id for result in report.clauses if result.status == "broken"}


def main(words: list[str]) -> int:
    missed = 0
    for name in [word for word in words if word != "--named"] or BROKEN:
        found, named = caught(name, named="--named" in words), set(caught_by(name))
        missed += bool(named - found)
        print(f"{name:<32} {'MISSED ' + ', '.join(sorted(named - found)) if named - found else 'caught'}", flush=True)
        if others := sorted(found - named):
            print(f"{'':<32} also by {', '.join(others)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
