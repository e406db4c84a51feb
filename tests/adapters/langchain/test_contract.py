"""The contract kit, pointed at the adapter: every clause that a chat history can offer, kills and faults included."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.checking import check


def test_the_contract_holds_on_sqlite(tmp_path: Path) -> None:
    assert check("langchain.target:on_sqlite", tmp_path / "report.json")


def test_the_contract_holds_on_a_server(tmp_path: Path) -> None:
    """Replies that are late, lost or cut off; the rest is the adapter's own, and the same."""
    assert check("langchain.target:on_valkey", tmp_path / "report.json", "--layers", "faults")
