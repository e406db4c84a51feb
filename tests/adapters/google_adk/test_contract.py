"""The contract kit, pointed at a session service: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, hold

LACKS = (
    ALL_LACK
    | SNAPSHOTS
    | {"checkpoints", "threads", "pop", "replace", "fields", "roles", "lists", "whole_turns", "twins"}
) - {"applications", "state", "state_scopes"}
SLOW = "long-history"  # the session is read before each event, as ADK's documentation asks


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(f"google_adk.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses, slow=SLOW)
