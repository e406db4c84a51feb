"""The contract kit, pointed at a session: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from everturn.testing.contract import CLAUSES
from tests.adapters.checking import ALL_LACK, BACKENDS, RUNS, hold
from tests.tiers import first

LACKS = ALL_LACK | {"checkpoints", "threads", "replace", "twins", "delete_snapshot"}


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(f"openai_agents.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses)


@pytest.mark.parametrize("backend", first(1, ["sqlite", "valkey"]))
def test_the_contract_of_compactions_holds(backend: str) -> None:
    lacks = (LACKS - {"compact", "pays_once"}) | BACKENDS[backend]
    clauses = [clause.id for clause in CLAUSES if clause.layer == "compaction"]
    hold(f"openai_agents.target:folding_on_{backend}", lacks=lacks, clauses=clauses)
