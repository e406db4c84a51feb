"""A real Runner with a scripted model: a tool-calling conversation across two processes."""

from __future__ import annotations

from pathlib import Path

import everturn
from tests.adapters.checking import ask


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask("openai_agents.worker", url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert [item.get("type") for item in first["items"]] == [None, "function_call", "function_call_output", "message"]
    second = ask("openai_agents.worker", url, "What did I say?")
    assert second["answer"] == "You began with 'Where is my order?' (seen 5)"
    assert second["items"][:4] == first["items"]
    with everturn.open(url) as store:
        roles = [message.role for message in store.get_history("customer-42")]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert store.verify().ok


def test_calls_made_at_once_go_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask("openai_agents.worker", url, "Where are my orders?")
    assert first["answer"] == "It is in Bern with 5678 (seen 5)"
    kinds = [None, "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    assert [item.get("type") for item in first["items"]] == kinds
    calls = [item["call_id"] for item in first["items"][1:5]]
    assert calls == ["c_1_1234", "c_1_5678"] * 2
    second = ask("openai_agents.worker", url, "What did I say?")
    assert second["answer"] == "You began with 'Where are my orders?' (seen 7)"
    assert second["items"][:6] == first["items"]
