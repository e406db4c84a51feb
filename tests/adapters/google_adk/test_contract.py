"""The contract kit, pointed at the adapter: what a session service can offer, kills and faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.testing.contract import CLAUSES
from tests.adapters.checking import check

# The kit loads a session before each event, as ADK's documentation asks: a thousand events take half a minute, and
# say of ADK's models what test_service.py says of the adapter.
LONG = {"long-history"}
LAYERS = {"sqlite": {"sequential", "edge", "persistence", "faults"}, "valkey": {"concurrency", "crash"}}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_contract_holds(tmp_path: Path, name: str) -> None:
    chosen = [clause.id for clause in CLAUSES if clause.layer in LAYERS[name] and clause.id not in LONG]
    options = [word for clause in chosen for word in ("--clause", clause)]
    report = check(f"google_adk.target:on_{name}", tmp_path / "report.json", *options)
    assert report["counts"]["pass"] >= 15
