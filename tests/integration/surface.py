"""Every method of a store, called once: for tests of what a store needs to be allowed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from everturn import ChatMessage, Record, Summary, ToolCall, Unsupported
from tests.integration.writers import turn


def whole_surface(store: Any) -> None:
    """Every method, once; what they answer is for other tests."""
    store.add_messages("a", turn("1"), key="k")
    store.append("a", [ToolCall("f", {}), Summary("s", [1.0, 0.0], (1, 2)), Record("r", {})])
    snapshot = store.save_snapshot("a", "label")
    store.replace("a", [ChatMessage("user", "edited")], after=1)
    store.save_context("a", "hello", "hi")
    assert len(store.get_history("a", limit=2)) == 2
    assert store.get_history("a", at=snapshot)
    assert store.get_history("a", at=1)
    store.load_memory("a")
    store.rollback_to_snapshot("a", snapshot)
    store.undo("a")
    store.rollback_to_snapshot("a", snapshot)
    store.add_tool_call("a", ToolCall("g", {}))
    store.add_summary("a", Summary("t", [0.0, 1.0], (1, 2)))
    store.get_tool_calls("a")
    store.get_summaries("a")
    store.trim("a", max_messages=1)
    store.state("a")
    store.list_snapshots("a")
    store.changes("a")
    store.info("a")
    store.diff("a", snapshot)
    store.set_ttl("a", 3600)
    store.set_facts("a", {"user": "42", "title": "x"})
    store.sessions(where={"user": "42"})
    store.fork("a", "b")
    store.set_facts("a", {"user": None, "title": None})
    store.sessions()
    for call in (lambda: store.sessions(order="recent"), lambda: store.find("hel")):
        with suppress(Unsupported):  # Redis has neither
            call()
    store.find("hel", session_id="a")
    for _ in range(11):
        store.replace("b", turn("2"))
    store.clear("b")
    store.delete_snapshot("a", snapshot)
    assert store.compact().entries
    assert store.verify().problems == ()
    store.clear_all()
    for name in ("a", "b"):
        assert store.erase(name).entries
