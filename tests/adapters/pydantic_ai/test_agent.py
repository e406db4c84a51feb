"""A real agent with a scripted model: a tool-calling conversation across two processes."""

from __future__ import annotations

from pathlib import Path

import everturn
from tests.adapters.checking import ask, shows
from tests.adapters.pydantic_ai import worker


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(worker.main, url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert first["requests"] == 2
    second = ask(worker.main, url, "What did I say?")
    assert second["answer"] == "You began with 'Where is my order?' (seen 5)"
    assert second["messages"][:4] == first["messages"]
    assert second["requests"] == 3
    with everturn.open(url) as store:
        history = store.get_history("customer-42")
        assert [message.role for message in history] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
            "assistant",
        ]
        assert store.verify().ok
    said = ("Where is my order?", '-> track({"order":1234}) [c1]', "[answers c1]", "in Bern with 1234", "(seen 5)")
    shows(url, "customer-42", *said)
