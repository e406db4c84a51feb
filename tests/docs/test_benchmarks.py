"""The benchmark run and its page: whom it refuses, what it measures, what it shows. No figure is judged."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from benchmarks import __main__ as run
from benchmarks import machine, page
from benchmarks.contenders.checkpoints import CheckpointerContender
from benchmarks.contenders.langchain_messages import LangChainMessages
from benchmarks.plan import Bar, Plotted, RunPlan, TableRow
from benchmarks.stats import spread

LATEST, LENGTH = 20, 60


class _Measured:
    """A measurement that counts how often it ran."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, name: str) -> Any:
        def measure(_: RunPlan) -> Any:
            self.times += 1
            return iter([TableRow(f"SQLite: {name}", "1 us", "1 us bare", spread([1.0]), bar=Bar("<=", 1.5))])

        return measure


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Measured:
    measured = _Measured()
    monkeypatch.setattr(run, "_measurement", measured)
    monkeypatch.setattr(run, "LOOK", 0.0)
    monkeypatch.setattr(
        sys, "argv", ["benchmarks", "--json", str(tmp_path / "run.json"), "--no-peers", "--without", "imports"]
    )
    return measured


def test_a_busy_machine_is_refused_before_anything_is_measured(
    measured: _Measured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "work_of_others", lambda _: 1.7)

    assert run.main() == 1

    assert measured.times == 0
    assert "1.7 processors busy before anything was measured" in capsys.readouterr().out


def test_a_machine_that_gets_busy_ends_the_run(
    measured: _Measured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "work_of_others", lambda _: 0.0)
    monkeypatch.setattr(machine.OtherWork, "processors", lambda _: 0.31)

    assert run.main() == 1

    assert measured.times == 1
    assert "no table" in capsys.readouterr().out
    assert not (tmp_path / "run.json").exists()


def test_a_quiet_machine_gets_a_table_and_a_page(
    measured: _Measured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "work_of_others", lambda _: 0.3)
    monkeypatch.setattr(machine.OtherWork, "processors", lambda _: 0.3)

    assert run.main() == 0

    assert measured.times == len(run.MEASUREMENTS) - 3  # without peers, adapters and imports
    assert "SQLite: latest" in capsys.readouterr().out
    told = json.loads((tmp_path / "run.json").read_text())
    text = "".join(page.generated(told, told["rows"]))
    assert '`make bench-page ARGS="--no-peers --without imports"`' in text
    assert "| SQLite: latest | 1 us | 1 us bare | 1.00x | <= 1.5x | yes |" in text
    assert not page.picture(told["rows"])  # no row of a turn: the picture of an earlier run stays
    assert ".svg" not in text


def test_each_row_is_in_the_section_of_its_backend() -> None:
    names = (
        "SQLite: take",
        "append at 10",
        "Valkey: take",
        "Redis: take",
        "PostgreSQL: take",
        "Redis, Adapter: add",
    )
    rows = [asdict(TableRow(name, "", "")) | {"reached": None} for name in names]

    text = "".join(page.generated({"date": "", "arguments": "", "machine": {}, "versions": {}}, rows))

    found = [line.split(" | ")[0].strip("|# ") for line in text.splitlines() if line.startswith(("## ", "| "))]
    assert [line for line in found if line != "row"] == [
        *("SQLite", "SQLite: take", "append at 10"),
        *("Redis", "Valkey: take", "Redis: take"),
        *("PostgreSQL", "PostgreSQL: take"),
        *("Adapters, beside the stores that the frameworks bring", "Redis, Adapter: add"),
    ]


def test_the_picture_has_a_panel_for_each_backend_and_a_line_for_each_system() -> None:
    rows = [
        asdict(TableRow("", "", "", plotted=Plotted(backend, length, {"everturn": 0.001, "a peer": 0.002})))
        for backend in ("SQLite", "Redis")
        for length in (20, 1_000)
    ]

    picture = page.picture(rows)

    assert picture.count("<polyline") == 4
    for title in ("SQLite: one turn of an agent", "Redis: one turn of an agent", ">everturn<", ">a peer<"):
        assert title in picture


class _InMemory(CheckpointerContender):
    """LangGraph's own saver in memory, as a contender."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()


class _List(LangChainMessages):
    """LangChain's messages in a list, as a contender."""

    def __init__(self) -> None:
        self._messages: list[Any] = []

    def add(self, session: Any, turn: list[Any]) -> None:
        self._messages += turn

    def read(self, session: Any) -> list[Any]:
        return self._messages


@pytest.mark.parametrize("make", [_InMemory, _List])
def test_a_peer_takes_part_in_every_row_of_the_turn(make: type[_InMemory | _List]) -> None:
    peer = make()

    peer.fill("a", first=0, count=LENGTH)
    peer.append("a", turns=LATEST, first=LENGTH // 2)
    reads = peer.read_latest("a", count=LATEST, times=2)
    turns = peer.agent_turns("a", turns=3, first=100, count=LATEST)

    assert (len(reads), len(turns)) == (2, 3)
    assert peer.load("a")[1] == LENGTH + 2 * LATEST + 6
