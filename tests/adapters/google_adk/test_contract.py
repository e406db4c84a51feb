"""The contract kit, pointed at the adapter: what a session service can offer, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.checking import check, clauses

LAYERS = {"sqlite": {"sequential", "persistence", "edge", "faults"}, "valkey": {"concurrency", "crash"}}
# The kit loads a session before each event, as ADK's documentation asks, a thousand times; the other starts Pythons.
LONG = {"long-history", "plain-process"}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_contract_holds(tmp_path: Path, name: str) -> None:
    chosen = clauses(LAYERS[name], without=LONG)
    report = check(f"google_adk.target:on_{name}", tmp_path / "report.json", *chosen)
    assert report["counts"]["pass"] >= 15
