"""The contract kit, pointed at a chat's memory over the adapter: kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import check, clauses

LAYERS = {"sqlite": {"sequential", "persistence", "edge", "faults"}, "valkey": {"concurrency", "crash"}}
# The first two load everything before each save, a thousand times; the last starts Python again and again.
LONG = {"long-history", "random-kills", "plain-process"}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_contract_holds(tmp_path: Path, name: str) -> None:
    chosen = clauses(LAYERS[name], without=LONG)
    report = check(f"pydantic_ai.target:on_{name}", tmp_path / "report.json", *chosen)
    assert report["counts"]["pass"] >= 15
