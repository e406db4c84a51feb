"""The contract kit, pointed at a chat's memory over the adapter: kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import check

LAYERS = {"sqlite": "sequential,persistence,edge,faults", "valkey": "concurrency,crash"}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_contract_holds(tmp_path: Path, name: str) -> None:
    report = check(f"pydantic_ai.target:on_{name}", tmp_path / "report.json", "--layers", LAYERS[name])
    assert report["counts"]["pass"] >= 15
