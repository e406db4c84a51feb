"""The contract kit, pointed at an application, by requests: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import BACKENDS, RUNS, hold

LACKS = {"checkpoints", "tasks", "twins", "pop", "trim_keeps_prompts", "tool_calls", "summaries"}
LACKS |= {"compact", "pays_once", "lease", "fence", "effects", "pending_writes", "applications", "state"}
LACKS |= {"delete_message", "items", "hold", "subgraphs", "listing", "agents", "state_scopes", "native_messages"}


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(f"fastapi.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses)
