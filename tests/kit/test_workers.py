"""The pool of workers: who is handed out again, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.testing.kit.target import parse
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.controller import ForkServer
from everturn.testing.workers.messages import CallerSteps, Close, Do, Open, Opened, Paused, Ready, Step, Stop

PATIENCE = 30.0


@pytest.fixture
def fork_server(tmp_path: Path) -> Iterator[ForkServer]:
    with ForkServer(parse("tests.kit.stores:reads_then_writes"), tmp_path) as fork_server:
        yield fork_server


def test_a_worker_that_has_reported_all_is_used_again(fork_server: ForkServer, tmp_path: Path) -> None:
    worker = fork_server.worker()
    worker.ask(Open("slot", str(tmp_path), {}), PATIENCE)
    assert isinstance(worker.ask(Close("slot"), PATIENCE), Ready)
    fork_server.rest(worker)
    assert fork_server.worker() is worker


def test_one_whose_report_nobody_read_is_not(fork_server: ForkServer, tmp_path: Path) -> None:
    """The next clause would take the late report for the answer to its own job."""
    worker = fork_server.worker()
    worker.send(Open("slot", str(tmp_path), {}))
    fork_server.rest(worker)
    other = fork_server.worker()
    assert other is not worker
    assert isinstance(other.ask(Open("slot", str(tmp_path), {}), PATIENCE), Opened)


def test_nor_is_one_that_was_stopped_and_not_let_go(fork_server: ForkServer, tmp_path: Path) -> None:
    worker = fork_server.worker(watched=True)
    worker.ask(Open("slot", str(tmp_path), {}), PATIENCE)
    caller = CallerSteps("A", (Step("append", "s", ((SentMessage("user", "x"),),)),))
    assert isinstance(worker.ask(Do("slot", (caller,), stop=Stop(1)), PATIENCE), Paused)
    fork_server.rest(worker)
    assert fork_server.worker(watched=True) is not worker
