"""The contract kit, pointed at an application, by requests: all layers, processes, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import ENGINES, hold
from tests.tiers import first

LACKS = {"checkpoints", "tasks", "twins", "pop", "trim_keeps_prompts", "tool_calls", "summaries"}


@pytest.mark.parametrize("engine", first(1, ENGINES))
def test_the_contract_holds(tmp_path: Path, engine: str) -> None:
    hold(f"fastapi.target:on_{engine}", tmp_path, lacks=LACKS | ENGINES[engine])
