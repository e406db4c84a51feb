"""The contract kit, pointed at a checkpointer: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_LACK, BACKENDS, SNAPSHOTS, hold
from tests.tiers import first

LACKS = ALL_LACK | SNAPSHOTS | {"appends", "tasks", "latest", "pop", "replace", "native_messages"}
LACKS -= {"pending_writes", "hold", "subgraphs", "listing"}


@pytest.mark.parametrize("backend", first(1, BACKENDS))
def test_the_contract_holds(backend: str) -> None:
    hold(f"langgraph.target:on_{backend}", lacks=LACKS | BACKENDS[backend])
