"""Kills the agent before and behind each of its steps, and runs it again: no step is lost, nothing is paid twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everturn

HERE = Path(__file__).parent
QUESTION = "Please refund order 1234."

CRASHING = '''
"""Runs the agent, and kills it at the point that the first argument names."""
import os, signal, sys

import agent

point = sys.argv[1]


def crashing(function, before, after):
    def run(*args):
        if point == before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args)
        if point == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run


agent.model = crashing(agent.model, "before the model", "behind the model")
agent.tools = crashing(agent.tools, "before the tool", "behind the tool")
agent.pay = crashing(agent.pay, "before the payment", "behind the payment")
print(agent.run("customer-42", sys.argv[2]))
'''


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "AGENT_STORE": f"sqlite:///{folder / 'memory.db'}",
        "AGENT_PAYMENTS": str(folder / "payments.txt"),
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def payments(folder: Path) -> list[str]:
    paid = folder / "payments.txt"
    return paid.read_text("utf-8").split() if paid.exists() else []


REFUNDED = "Done: refunded order 1234"
DOUBTFUL = "Done: refund of order 1234 was begun before; a person will look whether it was paid"


@pytest.mark.parametrize(
    ("point", "paid", "answer"),
    [
        pytest.param("before the model", ["1234"], REFUNDED, marks=pytest.mark.deep),
        ("behind the model", ["1234"], REFUNDED),
        pytest.param("before the tool", ["1234"], REFUNDED, marks=pytest.mark.deep),
        pytest.param("before the payment", [], DOUBTFUL, marks=pytest.mark.deep),
        ("behind the payment", ["1234"], DOUBTFUL),
        pytest.param("behind the tool", ["1234"], DOUBTFUL, marks=pytest.mark.deep),
    ],
)
def test_an_agent_that_is_killed_goes_on_and_pays_once(
    point: str, paid: list[str], answer: str, tmp_path: Path
) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    killed = run(tmp_path, "crashing.py", point, QUESTION)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = run(tmp_path, str(HERE / "agent.py"), "customer-42", QUESTION)
    assert again.stdout.strip() == answer, again.stderr
    assert payments(tmp_path) == paid
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        roles = [message.role for message in store.get_history("customer-42")]
    assert roles == ["user", "assistant", "tool", "assistant"], "a step is lost or doubled"
