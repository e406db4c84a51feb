"""Results of clauses: each status, the budget, the ledger, replays, and files that a run leaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from everturn.testing.contract import CLAUSES, edge
from everturn.testing.history import judge, load
from everturn.testing.kit import runner
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.selection import BadChoice, chosen, read_ledger
from everturn.testing.kit.target import needed, parse
from tests.kit.running import report, result

SOUND, BROKEN = "kit.sound.memory:threads", "kit.stores:unlocked"


def test_a_clause_that_holds_passes() -> None:
    assert result(SOUND, "order").status == "holds"


def test_a_clause_that_is_broken_fails_and_says_how() -> None:
    found = result(BROKEN, "append-append")
    assert found.status == "broken"
    assert {violation.kind for violation in found.violations} >= {"lost"}
    assert found.violations[0].events
    assert found.promise
    assert found.incident


def test_what_is_not_offered_is_not_run() -> None:
    found = result(SOUND, "undo")
    assert (found.status, found.detail) == ("not_offered", "not offered: needs `undo(session_id)`")


def test_an_extra_that_is_missing_is_not_offered_and_never_broken() -> None:
    found = result("kit.stores:without_an_extra", "clear")
    assert found.status == "not_offered"
    assert "pip install" in found.detail


def test_every_need_of_a_clause_has_words_for_the_author_of_a_store() -> None:
    for clause in CLAUSES:
        for need in clause.needs:
            assert needed([need]) != f"not offered: needs {need.replace('|', ' or ')}", need


def test_a_store_that_can_do_nothing_is_told_once() -> None:
    whole = report("kit.stores:returns_none", "order", "clear", "empty-turn")
    assert {clause.status for clause in whole.clauses} == {"untested"}
    assert len({clause.detail for clause in whole.clauses}) == 1
    assert "NoneType" in whole.clauses[0].detail
    assert whole.exit_code == 1


def test_a_store_in_memory_is_told_how_to_say_so() -> None:
    whole = report("kit.stores:forgetful", "another-process")
    assert "factory.processes = False" in whole.hints[0]
    assert report(SOUND, "order").hints == ()


def test_a_run_that_is_interrupted_is_reported_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "work_through", interrupted)
    whole = report(SOUND, "order", "clear", seed=77)
    assert [(clause.status, clause.detail) for clause in whole.clauses] == [
        ("untested", "the run was interrupted before")
    ] * 2
    assert (whole.seed, whole.exit_code) == (77, 1)


def test_a_kit_that_fails_is_reported_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("no more pipes")

    monkeypatch.setattr(runner, "work_through", failing)
    whole = report(SOUND, "order")
    assert (whole.clauses[0].status, whole.exit_code) == ("untested", 1)
    assert "the kit itself failed" in whole.clauses[0].detail
    assert "no more pipes" in whole.clauses[0].detail


def test_what_could_not_be_shown_is_untested_and_breaks_the_run() -> None:
    whole = report("kit.stores:refusing", "threads-lose-nothing")
    assert whole.clauses[0].status == "untested"
    assert "acknowledged" in whole.clauses[0].detail
    assert whole.exit_code == 1


def test_a_store_that_never_awaits_is_tested_all_the_same() -> None:
    found = report("kit.stores:never_awaits", "append-append", "clear-clear", "cancelled-in-append")
    assert [one.status for one in found.clauses] == ["holds", "holds", "holds"]


def test_a_long_history_leaves_time_for_the_clauses_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "gives_up", lambda _: 0.0)
    found = result(SOUND, "long-history")
    assert found.status == "untested"
    assert "could be stored in the time" in found.detail


def test_a_store_that_raises_where_it_should_work_fails() -> None:
    found = result("kit.stores:refusing", "order")
    assert found.status == "broken"
    assert "not now" in found.violations[0].story


def test_a_store_that_takes_its_process_along_fails() -> None:
    found = result("kit.stores:dying", "order")
    assert found.status == "broken"
    assert "status 3" in found.violations[0].story


def test_a_call_that_does_not_return_is_untested_and_the_run_goes_on() -> None:
    whole = report("kit.stores:hanging", "order", "clear", quick=False, budget=1.0)
    assert [clause.status for clause in whole.clauses] == ["untested", "untested"]
    assert "not returned" in whole.clauses[0].detail


def test_a_finding_of_a_sweep_is_replayed_by_its_number() -> None:
    found = result("kit.stores:reads_then_writes", "append-append")
    assert found.status == "broken"
    name = found.replay.split("--clause ")[1].split()[0]
    assert "@" in name
    assert result("kit.stores:reads_then_writes", name).status == "broken"
    assert result("kit.stores:reads_then_writes", "append-append@399").status != "broken"


def test_a_known_failure_does_not_break_the_run() -> None:
    whole = report(BROKEN, "order", "append-append", known={"append-append": "to be mended"})
    assert [clause.status for clause in whole.clauses] == ["holds", "known"]
    assert (whole.exit_code, whole.complaints) == (0, ())


@pytest.mark.parametrize("name", ["order", "undo", "no-such-clause"])
def test_a_ledger_entry_about_no_failure_breaks_the_run(name: str) -> None:
    whole = report(SOUND, "order", "undo", known={name: "why"})
    assert whole.exit_code == 1
    assert name in whole.complaints[0]


def test_a_run_can_stop_at_the_first_broken_clause() -> None:
    from everturn.testing.kit.runner import Runner, run_all

    clauses = chosen(CLAUSES, ["append-append", "order"])
    with Environment(parse(f"tests.{BROKEN}"), seed=1, quick=True) as run:
        whole = run_all(Runner(run, clauses, budget=10), clauses, stop_at_first=True)
    assert [clause.id for clause in whole.clauses] == ["append-append"]


def test_the_history_of_a_broken_clause_is_saved_and_can_be_judged_again(tmp_path: Path) -> None:
    result(BROKEN, "append-append", histories=tmp_path)
    again = judge(load(tmp_path / "append-append.jsonl"))
    assert "lost" in {violation.kind for violation in again.violations}


def test_the_same_seed_writes_the_same(tmp_path: Path) -> None:
    written = []
    for number in range(2):
        result("kit.stores:reads_then_writes", "append-append", seed=5, histories=tmp_path / str(number))
        events = load(tmp_path / str(number) / "append-append.jsonl")
        written.append([(one.session, one.values) for one in events if one.f == "append" and one.worker == "reader"])
    assert written[0][:20] == written[1][:20]


def test_target_code_does_not_run_in_this_process() -> None:
    before = set(sys.modules)
    report("kit.broken.max_plus_one:factory", "order", "append-append")
    assert not [name for name in set(sys.modules) - before if "tests.kit.broken" in name]


def test_clauses_are_chosen_by_name_and_layer() -> None:
    assert [one.clause.id for one in chosen(CLAUSES, ["order@3"])] == ["order"]
    assert chosen(CLAUSES, ["order@3"])[0].only == 3
    layers = {one.clause.layer for one in chosen(CLAUSES, (), ["edge, crash"])}
    assert layers == {"edge", "crash"}
    assert len(chosen(CLAUSES)) == len(CLAUSES)


@pytest.mark.parametrize(
    ("names", "layers", "says"), [(["ordr"], [], "order"), (["order@x"], [], "@7"), ([], ["x"], "edge")]
)
def test_what_there_is_not_is_refused_with_what_there_is(names: list[str], layers: list[str], says: str) -> None:
    with pytest.raises(BadChoice, match=says):
        chosen(CLAUSES, names, layers)


@pytest.mark.parametrize("text", ["x = 1", "[known]\norder = 1", '[known]\norder = ""', "[known", '[other]\na = "b"'])
def test_what_is_no_ledger_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(BadChoice, match=r"known\.toml"):
        read_ledger(path)


def test_a_ledger_is_clause_ids_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[known]\nappend-append = "issue 7"\n')
    assert read_ledger(path) == {"append-append": "issue 7"}
