"""The layer `compaction`: sound stores hold it, and a compaction that asks no model is not one that holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import QUICK_SECONDS, Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from everturn.testing.races.slow_compaction import prompt_of
from everturn.testing.shapes.base import ReadMessage
from everturn.testing.workers.fake_model import FakeModel, ModelDown
from tests.kit.sound.compaction import CompactingCore, CompactingLists
from tests.tiers import first

LAYER = [Chosen(clause) for clause in CLAUSES if clause.layer == "compaction"]


def statuses(target: str, *clauses: str, seed: int = 1) -> dict[str, str]:
    chosen = [one for one in LAYER if not clauses or one.clause.id in clauses]
    with Environment(parse(target), seed=seed, quick=True) as run:
        report = run_all(Runner(run, chosen, budget=QUICK_SECONDS), chosen)
    return {result.id: result.status for result in report.clauses}


@pytest.mark.parametrize("seed", first(1, range(5)))
@pytest.mark.parametrize("shape", first(1, ["lists", "agents"]))
def test_a_sound_store_holds_the_layer(shape: str, seed: int) -> None:
    found = statuses(f"tests.kit.sound.compaction:{shape}", seed=seed)
    assert {name for name, status in found.items() if status not in ("holds", "not_offered")} == set()
    assert list(found.values()).count("holds") >= 9


@pytest.mark.parametrize("clause", first(1, ["compaction-clear", "compaction-append", "compaction-twice"]))
def test_a_store_that_keeps_writers_waiting_for_the_model_is_not_accused(clause: str) -> None:
    assert statuses("tests.kit.sound.compaction:locking", clause) == {clause: "holds"}


class Idle(CompactingCore):
    def compact(self, session: str, summarize: Any, most: int) -> None:
        """Do nothing, as a store whose threshold is not reached."""


def idle(where: Path) -> CompactingLists:
    return CompactingLists(Idle(where))


def test_a_compaction_that_asks_no_model_is_untested() -> None:
    found = statuses(f"{__name__}:idle", "compaction", "compaction-append", "compaction-model-fails")
    assert set(found.values()) == {"untested"}


def test_the_model_names_what_it_was_given() -> None:
    model = FakeModel()
    told = model.summarize([{"role": "user", "content": "t3.1"}, ReadMessage("user", "t3.2")], "summary of t1.1 t2.1")
    assert told == "summary of t1.1 t2.1 t3.1 t3.2"
    assert prompt_of([ReadMessage("system", told), ReadMessage("user", "t4.1")]).summarised == tuple(told.split()[2:])
    assert prompt_of([ReadMessage("system", told), ReadMessage("user", "t4.1")]).in_view == ("t4.1",)


def test_the_model_does_once_what_a_clause_wants_of_it() -> None:
    paused: list[int] = []
    pause: Callable[[], None] = lambda: paused.append(1)  # noqa: E731 - counted
    model = FakeModel(pause)
    model.arm("fail")
    with pytest.raises(ModelDown):
        model.summarize([])
    model.summarize([])
    assert (model.calls, paused) == (2, [])
    model.arm("pause")
    model.summarize([])
    model.summarize([])
    assert (model.calls, paused) == (2, [1])
