"""The scorecard: the page says what latest.json and causes.toml say, and a row is what a run of the kit reported."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.results import ClauseResult, RunReport, Violation, count_statuses
from tools.scorecard import card, page, runs
from tools.scorecard.card import Card, Finding, Result
from tools.scorecard.page import Cause, causes
from tools.scorecard.rows import PEERS, ROWS, Row

ROOT = Path(__file__).parents[2]
PINNED = {
    name.lower(): version
    for file in ("bench.txt", "strands.txt")
    for name, version in re.findall(
        r"^([\w-]+)(?:\[.*?\])?==(\S+)", (ROOT / "requirements" / file).read_text("utf-8"), re.MULTILINE
    )
}


def saved() -> Card:
    found = card.read()
    assert found is not None
    return found


# --- the files of the repository -------------------------------------------------------------------------------------


def test_the_page_is_made_from_the_file_and_the_causes() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(saved(), causes()), "run: python -m tools.scorecard --page"


def test_every_row_counts_each_clause_once_and_tells_its_versions_day_and_commit() -> None:
    for result in saved().results:
        assert sum(result.counts.values()) == result.clauses, result.store
        assert len(result.holds) + len(result.not_offered) + len(result.findings) == result.clauses, result.store
        assert result.contract == saved().contract
        assert re.match(r"2\d{3}-\d\d-\d\dT", result.started)
        assert result.commit, result.store
        assert result.versions, result.store


def test_stores_of_others_were_run_at_the_pinned_versions() -> None:
    for result in saved().results:
        pinned = {name: PINNED[name.lower()] for name in result.versions if name.lower() in PINNED}
        assert {name: result.versions[name] for name in pinned} == pinned, result.store


def test_the_page_names_no_place_of_a_machine() -> None:
    text = page.PAGE.read_text("utf-8") + card.FILE.read_text("utf-8")
    assert re.findall(r"/(?:tmp|home|root|work|Users)/", text) == []


def test_every_target_is_a_factory_and_every_cause_is_of_a_target_and_a_clause() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    targets = {row.target.removeprefix(PEERS) for row in ROWS}
    for target in (target for target in targets if "://" not in target):
        module, _, factory = target.partition(":")
        tree = ast.parse((ROOT / "examples" / "peers" / f"{module}.py").read_text("utf-8"))
        assert factory in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for cause in causes():
        assert set(cause.targets) <= targets
        assert set(cause.clauses) <= {clause.id for clause in CLAUSES}


# --- how it is made --------------------------------------------------------------------------------------------------

CLAUSE = ClauseResult(
    "append-append",
    "concurrency",
    "broken",
    "stopped at 3 points; history: .everturn/a.jsonl",
    (Violation("lost", "t1: lost <b>\n0.1 ms A append", ()),),
    replay="everturn check x:y --clause append-append@4 --seed 1",
)
OTHERS = (
    ClauseResult("order", "sequential", "holds"),
    ClauseResult("undo", "sequential", "not_offered", "not offered: needs `undo(session_id)`"),
    ClauseResult("nul", "edge", "untested", "could not open /srv/some/place/memory.db"),
)
ROW = Row("A `Store`", f"{PEERS}agents_peers:sqlite", ("a-package",))


def result(*, clauses: tuple[ClauseResult, ...] = (CLAUSE, *OTHERS), contract: str = "2", row: Row = ROW) -> Result:
    report = RunReport(
        contract_version=contract,
        target=row.target,
        seed=1,
        clauses=clauses,
        started="2026-11-18T20:00:00+00:00",
        seconds=59.96,
        versions={"everturn": "0.1.0", "python": "3.11.7"},
        counts=count_statuses(clauses),
    )
    return runs.result_of(row, report, budget=60, versions={"a-package": "1.2"}, commit="abc", busy=1.5)


def test_a_row_has_what_the_report_says() -> None:
    made = result()
    assert (made.holds, made.not_offered) == (("order",), ("undo",))
    assert made.command == f"everturn check {ROW.target} --contract 2 --seed 1 --budget 60"
    assert made.findings == (
        Finding(
            clause="append-append",
            status="broken",
            kind="lost",
            story="t1: lost <b>",
            detail="stopped at 3 points",
            replay=CLAUSE.replay,
        ),
        Finding(clause="nul", status="untested", detail="could not open .../memory.db"),
    )


def test_a_finding_is_explained_only_at_the_version_that_was_examined() -> None:
    cause = Cause(("agents_peers:sqlite",), ("append-append",), "a-package 1.2", "it reads, then writes", "source")
    written = page.page(Card(contract="2", results=(result(),)), (cause,))
    assert "- `append-append`: it reads, then writes (shown by: source)\n" in written
    assert "`, *not examined*" not in written
    for other in (
        msgspec.structs.replace(cause, version="a-package 1.3"),
        msgspec.structs.replace(cause, targets=("agents_peers:redis",)),
        msgspec.structs.replace(cause, clauses=("fork",)),
    ):
        written = page.page(Card(contract="2", results=(result(),)), (other,))
        assert "- `append-append`, *not examined*: lost: t1: lost \\<b\\>\n" in written
        assert "it reads, then writes" not in written
    assert "- untested: `nul`: could not open .../memory.db\n" in written


def test_a_row_takes_the_place_of_the_earlier_one_of_its_target() -> None:
    other = replace(ROW, target=f"{PEERS}agents_peers:redis")
    order = [ROW.target, other.target]
    both = card.with_result(card.with_result(None, result(row=other), order), result(), order)
    assert [one.target for one in both.results] == order
    again = card.with_result(both, result(clauses=OTHERS), order)
    assert [one.clauses for one in again.results] == [3, 4]
    assert card.with_result(both, result(), order[:1]).results == (result(),)


def test_rows_of_two_contracts_are_never_in_one_card() -> None:
    other = replace(ROW, target=f"{PEERS}agents_peers:redis")
    old = card.with_result(None, result(contract="1", row=other), [ROW.target, other.target])
    new = card.with_result(old, result(), [ROW.target, other.target])
    assert (new.contract, [one.target for one in new.results]) == ("2", [ROW.target])


def test_the_file_is_read_as_it_was_written_and_another_schema_is_refused(tmp_path: Path) -> None:
    made = Card(contract="2", results=(result(),))
    card.write(made, tmp_path / "latest.json")
    assert card.read(tmp_path / "latest.json") == made
    assert card.read(tmp_path / "none.json") is None
    card.write(msgspec.structs.replace(made, schema=99), tmp_path / "latest.json")
    with pytest.raises(card.BadCard, match="schema 99"):
        card.read(tmp_path / "latest.json")


def test_a_row_is_a_real_run_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "REPORTS", tmp_path)
    made = runs.run(
        Row("sound", "tests.kit.sound.memory:threads", ("msgspec",), layers="resume"), Path(sys.prefix), budget=None
    )
    assert made.counts["not_offered"] == made.clauses == len(made.not_offered)
    assert (made.target, set(made.versions), made.findings) == ("tests.kit.sound.memory:threads", {"msgspec"}, ())
    assert (tmp_path / "tests.kit.sound.memory-threads.html").exists()
    with pytest.raises(runs.RunFailed, match="ended with 2"):
        runs.run(
            Row("none", "tests.kit.stores:never_opens", ("msgspec",), layers="resume"), Path(sys.prefix), budget=None
        )
