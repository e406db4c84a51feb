"""The contract kit, pointed at a chat history: all layers, processes, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import ALL_LACK, ENGINES, SNAPSHOTS, hold

LACKS = ALL_LACK | SNAPSHOTS | {"checkpoints", "tasks", "latest", "pop", "replace"}
UNTRIED = {"odd-json": "returned messages carry no metadata"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_contract_holds(tmp_path: Path, engine: str) -> None:
    hold(f"langchain.target:on_{engine}", tmp_path, lacks=LACKS | ENGINES[engine], untried=UNTRIED)
