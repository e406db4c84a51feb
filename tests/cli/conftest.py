"""A store with a past, and the command run in this process: its exit code, and what it wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import everturn
from everturn import ChatMessage, Record, Summary, ToolCall
from everturn.cli import main

CUSTOMER = "customer-42"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pipe, whatever runs the tests: xdist, for one, says how wide its terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["everturn", *map(str, words)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file with one conversation that was led astray, brought back, and went on."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        store.add_messages(CUSTOMER, [ChatMessage("system", "You help."), ChatMessage("user", "My order is 1234.")])
        before = store.save_snapshot(CUSTOMER, "before the new prompt")
        store.save_context(CUSTOMER, "Where is it?", "What is your order number?")
        store.rollback_to_snapshot(CUSTOMER, before)
        call = {"id": "call-1", "function": {"name": "track", "arguments": '{"order": 1234}'}}
        store.append(
            CUSTOMER,
            [
                ChatMessage("assistant", None, tool_calls=[call]),
                ChatMessage("tool", "in Bern", tool_call_id="call-1"),
                ToolCall("track", {"order": 1234}, result="in Bern", duration=0.25),
                Summary("Order 1234 is in Bern.", [0.5, 0.5], covers=(1, 2)),
                Record("langgraph.checkpoint", {"step": 3}),
            ],
        )
        store.save_context("customer-43", "Hello", "Hi!")
    return url
