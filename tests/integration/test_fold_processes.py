"""Folds by many processes: one summary, one model paid, nothing lost, and a killed one leaves the session as it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import everturn
from everturn import ChatMessage
from tests.integration.children import children

PATIENCE = 60.0


def fold(here: str) -> None:
    """Fold in a process of its own, by a model that works until it may go on; say whether this process paid it."""
    folder = Path(here)

    def summarize(messages: list[Any], earlier: Any) -> str:
        with (folder / "paid").open("a") as paid:
            paid.write("x")
        end = time.monotonic() + PATIENCE
        while not (folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.01)
        return f"{len(messages)} messages"

    with everturn.open(f"sqlite:///{folder}/memory.db", timeout=30) as store:
        print(store.fold("a", summarize, max_messages=2) is not None, flush=True)


def until_paid(here: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not (here / "paid").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert (here / "paid").exists()


def filled(here: Path, count: int = 10) -> None:
    with everturn.open(f"sqlite:///{here}/memory.db") as store:
        for number in range(count):
            store.add_messages("a", [ChatMessage("user", str(number))])


def test_many_processes_fold_once_while_others_append(tmp_path: Path) -> None:
    filled(tmp_path)
    with (
        children(*((fold, tmp_path) for _ in range(5))) as workers,
        everturn.open(f"sqlite:///{tmp_path}/memory.db") as store,
    ):
        until_paid(tmp_path)
        end = time.monotonic() + PATIENCE
        while sum(worker.poll() is None for worker in workers) > 1 and time.monotonic() < end:
            time.sleep(0.01)  # until all but the one that pays have given up
        for number in range(20):
            store.add_messages("a", [ChatMessage("user", f"late {number}")])
        (tmp_path / "go").touch()
        told = [worker.finished().strip() for worker in workers]
        assert sorted(told) == ["False"] * 4 + ["True"]
        assert (tmp_path / "paid").read_text() == "x"
        assert [summary.text for summary in store.get_summaries("a")] == ["8 messages"]
        history = [message.content for message in store.get_history("a")]
        assert history == ["8", "9", *(f"late {number}" for number in range(20))]
        store.undo("a")
        assert len(store.get_history("a")) == 30
        assert [info.session_id for info in store.sessions().sessions] == ["a"]


def test_a_process_that_is_killed_while_its_model_works_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path)
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        before = store.state("a")
        with children((fold, tmp_path)) as (worker,):
            until_paid(tmp_path)
            worker.kill()
            worker.wait()
        assert store.state("a") == before
        assert store.verify().ok
