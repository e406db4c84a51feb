"""The contract kit, pointed at a chat history: all layers, processes, kills and faults included."""

from __future__ import annotations

import pytest

from tests.adapters.checking import ALL_IS_TAKEN, ALL_LACK, BACKENDS, RUNS, SNAPSHOTS, hold

LACKS = ALL_LACK | SNAPSHOTS | {"checkpoints", "tasks", "latest", "pop", "replace"}
UNTRIED = dict.fromkeys(("odd-json", "odd-values"), "returned messages carry no metadata") | ALL_IS_TAKEN
# LangChain's messages have tool calls of their own form, with arguments that are a dict.
UNTRIED |= {"arguments-are-text": "messages with tool calls are refused loudly"}


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(backend: str, clauses: frozenset[str]) -> None:
    hold(f"langchain.target:on_{backend}", lacks=LACKS | BACKENDS[backend], clauses=clauses, untried=UNTRIED)
