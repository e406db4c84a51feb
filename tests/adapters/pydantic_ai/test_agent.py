"""A real agent with a scripted model: a tool-calling conversation across two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import everturn

ROOT = Path(__file__).parents[3]


def ask(url: str, question: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.adapters.pydantic_ai.worker", url, question]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert first["requests"] == 2
    second = ask(url, "What did I say?")
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
    script = "from everturn.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", script, "show", url, "customer-42"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for line in (
        "Where is my order?",
        '-> track({"order":1234}) [c1]',
        "in Bern with 1234",
        "[answers c1]",
        "(seen 5)",
    ):
        assert line in shown
