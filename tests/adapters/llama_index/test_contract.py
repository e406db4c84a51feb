"""The contract kit, pointed at a chat store: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_IS_TAKEN, ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, hold

LACKS = ALL_LACK | SNAPSHOTS | {"checkpoints", "tasks", "latest", "fields", "lists", "whole_turns", "twins"}
LACKS -= {"delete_message"}
NOTHING_FAILS = "no call of the kit was refused, and there is no server whose connections could be cut"


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    untried = ALL_IS_TAKEN | ({"leaks-in-faults": NOTHING_FAILS} if backend != "valkey" else {})
    hold(f"llama_index.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses, untried=untried)
