"""The contract kit, pointed at a session service: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, TOO_MANY_TRIES, hold

LACKS = (
    ALL_LACK
    | SNAPSHOTS
    | {"checkpoints", "threads", "pop", "replace", "fields", "roles", "lists", "whole_turns", "twins"}
) - {"applications", "state", "state_scopes"}
SLOW = "long-history"  # the session is read before each event, as ADK's documentation asks


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    tried = clauses - TOO_MANY_TRIES.get(backend, set())
    hold(f"google_adk.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=tried, slow=SLOW)
