"""A read that fails when all is well has seen nothing, and nothing seen is no evidence: no clause may pass on it."""

from __future__ import annotations

import pytest

from tests.kit.running import report, result

READ_NOTHING = {"snapshots-are-listed", "ids-stay-inside"}


@pytest.mark.parametrize("target", ["unreadable", "unreadable_in_tasks"])
def test_a_store_that_cannot_be_read_passes_no_clause_that_reads(target: str) -> None:
    found = report(f"kit.stores:{target}")
    assert {clause.id for clause in found.clauses if clause.status == "holds"} <= READ_NOTHING


def not_for_you(target: str, clause: str) -> None:
    found = result(f"kit.stores:{target}", clause)
    assert found.status == "broken"
    assert "not for you" in str(found)


@pytest.mark.parametrize("clause", ["append-read", "read-trim", "read-clear", "read-snapshot", "read-rollback"])
def test_a_reader_that_never_reads_has_met_nobody(clause: str) -> None:
    not_for_you("one_reader_of_a_file", clause)


@pytest.mark.parametrize("clause", ["append-snapshot", "clear-snapshot", "killed-in-snapshot", "snapshot-is-a-cut"])
def test_a_snapshot_that_cannot_be_read_was_not_kept(clause: str) -> None:
    not_for_you("shy_after_rollback", clause)


@pytest.mark.parametrize("clause", ["killed-in-append", "killed-after-append", "random-kills"])
def test_what_cannot_be_read_after_a_kill_was_not_kept(clause: str) -> None:
    not_for_you("mourning", clause)


def test_a_child_that_cannot_read_does_not_go_on() -> None:
    not_for_you("not_for_children", "fork")


def test_a_child_that_cannot_open_the_store_does_not_go_on() -> None:
    found = result("kit.stores:not_opened_by_children", "fork")
    assert found.status == "broken"
    assert "child" in str(found)


@pytest.mark.parametrize("clause", ["garbage", "half-a-file"])
def test_an_error_that_was_there_before_the_damage_is_not_about_it(clause: str) -> None:
    not_for_you("one_reader_of_a_file", clause)
