"""The contract kit, pointed at a chat store: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_IS_TAKEN, ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, hold

LACKS = ALL_LACK | SNAPSHOTS | {"checkpoints", "tasks", "latest", "fields", "lists", "whole_turns", "twins"}
LACKS -= {"delete_message"}


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(f"llama_index.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses, untried=ALL_IS_TAKEN)
