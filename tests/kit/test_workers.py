"""The pool of workers: who is handed out again, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.testing.kit.target import parse
from everturn.testing.shapes import Said
from everturn.testing.workers.controller import Nursery
from everturn.testing.workers.messages import Close, Do, Lane, Open, Opened, Paused, Ready, Step, Stop

PATIENCE = 30.0


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(parse("tests.kit.stores:reads_then_writes"), tmp_path) as nursery:
        yield nursery


def test_a_worker_that_has_reported_all_is_used_again(nursery: Nursery, tmp_path: Path) -> None:
    worker = nursery.worker()
    worker.ask(Open("slot", str(tmp_path), {}), PATIENCE)
    assert isinstance(worker.ask(Close("slot"), PATIENCE), Ready)
    nursery.rest(worker)
    assert nursery.worker() is worker


def test_one_whose_report_nobody_read_is_not(nursery: Nursery, tmp_path: Path) -> None:
    """Who comes next would take the report for the answer to an order of their own."""
    worker = nursery.worker()
    worker.send(Open("slot", str(tmp_path), {}))
    nursery.rest(worker)
    other = nursery.worker()
    assert other is not worker
    assert isinstance(other.ask(Open("slot", str(tmp_path), {}), PATIENCE), Opened)


def test_nor_is_one_that_was_stopped_and_not_let_go(nursery: Nursery, tmp_path: Path) -> None:
    worker = nursery.worker(watched=True)
    worker.ask(Open("slot", str(tmp_path), {}), PATIENCE)
    lane = Lane("A", (Step("append", "s", ((Said("user", "x"),),)),))
    assert isinstance(worker.ask(Do("slot", (lane,), stop=Stop(1)), PATIENCE), Paused)
    nursery.rest(worker)
    assert nursery.worker(watched=True) is not worker
