"""The contract kit, pointed at a chat's memory over the adapter: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, TOO_MANY_TRIES, hold

LACKS = ALL_LACK | SNAPSHOTS | {"checkpoints", "threads", "latest", "pop", "replace", "twins", "native_messages"}
UNTRIED = dict.fromkeys(("odd-json", "odd-values"), "returned messages carry no metadata")
SLOW = "long-history"  # the application loads all that was said before each turn


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(
        f"pydantic_ai.target:on_{backend}",
        lacks=LACKS | BACKENDS[backend],
        clauses=clauses - TOO_MANY_TRIES.get(backend, set()),
        untried=UNTRIED,
        slow=SLOW,
    )
