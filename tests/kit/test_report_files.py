"""The JSON report: written, read back, and refused when it is something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everturn.testing.report import BadReport, read_json, write_json
from everturn.testing.results import STATUSES, ClauseResult, Event, RunReport, Violation, count_statuses
from tests.kit.report_tools import clause, everything, report

FORMAT = Path(__file__).parents[2] / "docs" / "report-format.md"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_json(everything(), tmp_path / "report.json")
    assert read_json(tmp_path / "report.json") == everything()


def test_the_json_has_the_fields_that_are_promised(tmp_path: Path) -> None:
    write_json(everything(), tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert {"contract_version", "seed", "target", "clauses", "counts", "started", "seconds", "versions"} <= told.keys()
    broken = told["clauses"][0]
    assert {"id", "layer", "status", "violations", "promise", "incident", "replay"} <= broken.keys()
    assert {"kind", "story", "events"} <= broken["violations"][0].keys()


def test_every_field_is_documented() -> None:
    page = FORMAT.read_text("utf-8")
    fields = [name for kind in (RunReport, ClauseResult, Violation) for name in kind.__struct_fields__]
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_every_field_of_an_event_is_documented() -> None:
    page = FORMAT.with_name("history-format.md").read_text("utf-8")
    assert [name for name in Event.__struct_fields__ if f"`{name}`" not in page] == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"clauses": 1}', "\x00", '{"target": "\\ud800"}'])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(BadReport, match="not a report"):
        read_json(path)


def test_a_report_of_a_later_format_is_refused(tmp_path: Path) -> None:
    write_json(report(report_format=99), tmp_path / "report.json")
    with pytest.raises(BadReport, match="report format 99"):
        read_json(tmp_path / "report.json")


def test_a_report_of_format_1_is_read_with_the_words_of_today(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    now = report(clause("holds"), clause("broken"), clause("known"))
    write_json(now, path)
    text = path.read_text("utf-8").replace('"holds"', '"pass"').replace('"broken"', '"fail"')
    path.write_text(text.replace('"report_format": 2', '"report_format": 1'))
    assert '"fail"' in path.read_text("utf-8")
    assert read_json(path) == now


@pytest.mark.parametrize("text", ['{"report_format": 1, "clauses": [1]}', '{"report_format": 1, "counts": []}'])
def test_a_file_that_is_no_report_of_format_1_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(BadReport, match="not a report"):
        read_json(path)


def test_fields_of_later_versions_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_json(report(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": "fine"}))
    assert read_json(path) == report()


@pytest.mark.parametrize(
    ("statuses", "complaints", "code"),
    [
        ((), (), 0),
        (("holds", "not_offered", "known"), (), 0),
        (("holds", "broken"), (), 1),
        (("holds", "untested"), (), 1),
        (("holds",), ("the ledger names a clause that passes",), 1),
    ],
)
def test_broken_untested_and_complaints_fail_a_run(statuses: tuple, complaints: tuple, code: int) -> None:
    assert report(*map(clause, statuses), complaints=complaints).exit_code == code


def test_every_status_is_counted_also_when_there_is_none() -> None:
    assert count_statuses([clause("broken"), clause("broken")]) == dict.fromkeys(STATUSES, 0) | {"broken": 2}
