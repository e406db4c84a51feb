"""A real Runner with a scripted model: a tool-calling conversation across two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import everturn

ROOT = Path(__file__).parents[3]


def ask(url: str, question: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.adapters.openai_agents.worker", url, question]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert [item.get("type") for item in first["items"]] == [None, "function_call", "function_call_output", "message"]
    second = ask(url, "What did I say?")
    assert second["answer"] == "You began with 'Where is my order?' (seen 5)"
    assert second["items"][:4] == first["items"]
    with everturn.open(url) as store:
        roles = [message.role for message in store.get_history("customer-42")]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert store.verify().ok
