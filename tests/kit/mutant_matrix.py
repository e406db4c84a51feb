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
    """Run a store, and name the clauses that it breaks. A second, longer run has those that name it and did not yet
    catch it: a quick run takes one direction of a pair, and a few points of a call."""
    found: set[str] = set()
    for quick in (True, False):
        wanted = {clause.id for clause in CLAUSES} if quick and not named else set(caught_by(name)) - found
        if not wanted:
            break
        chosen = [Chosen(clause) for clause in CLAUSES if clause.id in wanted]
        with Environment(parse(f"tests.kit.broken.{name}:factory"), seed=1, quick=quick) as run:
            report = run_all(Runner(run, chosen, budget=BUDGET), chosen)
        found |= {result.id for result in report.clauses if result.status == "broken"}
    return found


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
