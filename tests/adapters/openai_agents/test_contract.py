"""The contract kit, pointed at a session: all layers, processes, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import ALL_LACK, BACKENDS, RUNS, hold

LACKS = ALL_LACK | {"checkpoints", "threads", "replace", "twins", "delete_snapshot"}


@pytest.mark.parametrize(("backend", "clauses"), RUNS)
def test_the_contract_holds(tmp_path: Path, backend: str, clauses: frozenset[str]) -> None:
    hold(f"openai_agents.target:on_{backend}", tmp_path, lacks=LACKS | BACKENDS[backend], clauses=clauses)
