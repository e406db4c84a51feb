"""Damage is loud: what is not what was written is not copied, and is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import everturn
from everturn import CorruptEntry
from tests.integration.copying.talks import say
from tests.store.places import Place


def three_sessions(store: Any) -> None:
    for name in "abc":
        for text in ("1", "2", "3"):
            say(store, name, text)


def assert_loud(here: Any, there: Any, seq: int | None, *said: str) -> None:
    """The copy raises for the session "b", and has brought the others. None: no entry is named, or any."""
    outcomes = {}
    with pytest.raises(CorruptEntry) as caught:
        everturn.copy(here, there, progress=lambda told: outcomes.update({told.session_id: told.outcome}))
    assert caught.value.session_id == "b"
    assert seq in (None, caught.value.seq)
    notes = "\n".join([str(caught.value), *caught.value.__notes__])
    assert [part for part in (*said, "imported=2", "'b'") if part not in notes] == []
    assert outcomes == {"a": "imported", "b": "corrupt", "c": "imported"}
    assert (there.state("a"), there.state("c")) == (here.state("a"), here.state("c"))
    assert there.state("b").version == 0


def test_an_entry_that_is_not_what_was_written_is_named(source: Place, beside: Any, steps: None) -> None:
    here = source.open()
    three_sessions(here)
    entry = source.editor.entry("b", 2)
    source.editor.put_entry("b", 2, replace(entry, body=entry.body.replace(b"2", b"X")))
    assert_loud(here, beside, 2, "do not match their checksum")


def test_an_entry_that_is_gone_is_named(source: Place, beside: Any, steps: None) -> None:
    here = source.open()
    three_sessions(here)
    source.editor.drop_entry("b", 2)
    assert_loud(here, beside, 2, "should be there, and is not")


def test_an_entry_is_missed_that_only_a_snapshot_shows(source: Place, beside: Any) -> None:
    here = source.open()
    three_sessions(here)
    snapshot = here.save_snapshot("b", "the only way there")
    here.replace("b", [], after=1)
    source.editor.drop_entry("b", 3)
    assert snapshot.messages == 3
    assert_loud(here, beside, 3, "should be there, and is not")


def test_a_log_that_is_gone_is_not_an_empty_session(source: Place, beside: Any) -> None:
    here = source.open()
    three_sessions(here)
    source.editor.drop_log("b")
    assert_loud(here, beside, 1, "should be there, and is not")


def test_a_change_that_is_gone_is_named(source: Place, beside: Any, steps: None) -> None:
    here = source.open()
    three_sessions(here)
    source.editor.drop_change("b", 2)
    assert_loud(here, beside, None, "change")


def test_damage_in_the_target_is_named_when_the_copy_is_compared(target: Place, beside: Any) -> None:
    there = target.open()
    three_sessions(beside)
    everturn.copy(beside, there)
    target.editor.drop_entry("b", 2)
    with pytest.raises(CorruptEntry) as caught:
        everturn.copy(beside, there)
    assert (caught.value.session_id, caught.value.seq) == ("b", 2)
    assert any("target of the copy" in note for note in caught.value.__notes__)


def test_a_target_that_shows_something_else_is_a_conflict(target: Place, beside: Any) -> None:
    from everturn.core import codec
    from tests.store.places import Stored

    there = target.open()
    three_sessions(beside)
    everturn.copy(beside, there)
    body = target.editor.entry("b", 2).body.replace(b"2", b"X")
    target.editor.put_entry("b", 2, Stored("message", body, codec.checksum("message", body)))
    report = everturn.copy(beside, there)
    ((name, why),) = report.conflicts
    assert (name, report.skipped, report.verified) == ("b", 2, 2)
    assert "do not show the same" in why
