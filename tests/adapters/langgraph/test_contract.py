"""The contract kit, pointed at a checkpointer: all layers, processes, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import ALL_LACK, ENGINES, SNAPSHOTS, hold

LACKS = ALL_LACK | SNAPSHOTS | {"appends", "tasks", "latest", "pop", "replace"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_contract_holds(tmp_path: Path, engine: str) -> None:
    hold(f"langgraph.target:on_{engine}", tmp_path, lacks=LACKS | ENGINES[engine])
