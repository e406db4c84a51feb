"""Shapes on stores as they were released: the framework's own messages go in, and the kit reads what it wrote.

agent-framework-core and langgraph-checkpoint are installed for `make test`; Strands, which wants another version of
OpenTelemetry, only in the environment of `make scorecard`, whose results are in docs/scorecard.md.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.kit.running import report

CLAUSES = ("store-and-retrieve", "order", "isolation", "another-process", "checkpoint-lost-update", "deleted-items")
PEERS = "examples.peers.agent_framework_peers"
HOLDS = {"store-and-retrieve", "order", "isolation"}


def items(where: Path) -> Any:
    """InMemoryStore of langgraph-checkpoint. Imported here: the process of the tests needs no langgraph."""
    from langgraph.store.memory import InMemoryStore

    return InMemoryStore()


items.processes = False  # type: ignore[attr-defined]

STORES = [
    (f"{PEERS}:file_history", {"another-process"}, set()),
    (f"{PEERS}:memory_history", set(), set()),
    (f"{PEERS}:file_checkpoints", {"another-process"}, {"checkpoint-lost-update"}),
    ("kit.test_released_stores:items", {"deleted-items"}, set()),
]
if importlib.util.find_spec("strands"):
    STORES.append(("examples.peers.strands_peers:files", {"another-process"}, {"checkpoint-lost-update"}))


@pytest.mark.parametrize(("target", "holds", "broken"), STORES, ids=lambda value: str(value).rpartition(":")[2])
def test_a_released_store_is_driven_by_its_shape(target: str, holds: set[str], broken: set[str]) -> None:
    found = {clause.id: clause for clause in report(target, *CLAUSES).clauses}
    by_status = {status: {name for name in found if found[name].status == status} for status in ("holds", "broken")}
    assert by_status == {"holds": HOLDS | holds, "broken": broken}, found
