"""Everything of a session arrives, from any backend in any other, and goes on there as it would have here."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn import ChatMessage, CopyReport, KeyReused, Summary
from tests.integration.copying.circle import in_a_circle
from tests.integration.copying.talks import HOSTILE, assert_alike, facts, fill, go_on, say
from tests.store.places import Place


def test_everything_arrives(source: Place, target: Place) -> None:
    copy_all(source, target)


@in_a_circle
def test_everything_arrives_in_small_steps(source: Place, target: Place, small_steps: None) -> None:
    copy_all(source, target)


def copy_all(source: Place, target: Place) -> None:
    here, there = source.open(), target.open()
    names = fill(here)
    report = everturn.copy(here, there)
    assert report == CopyReport(len(names), 0, 0, 0, verified=len(names), behind=0, conflicts=())
    assert_alike(here, there, *names)
    assert there.verify().ok
    assert [each.session_id for each in there.sessions().sessions] == sorted(names, key=str.encode)


def test_run_twice_it_changes_nothing(target: Place, beside: Any) -> None:
    here, there = beside, target.open()
    names = fill(here)
    everturn.copy(here, there)
    before = [(there.info(name), facts(there, name)) for name in names]
    report = everturn.copy(here, there)
    assert (report.skipped, report.verified, report.imported, report.extended) == (len(names), len(names), 0, 0)
    assert [(there.info(name), facts(there, name)) for name in names] == before


@in_a_circle
def test_what_arrived_goes_on_as_it_would_have_here(source: Place, target: Place) -> None:
    here, there = source.open(), target.open()
    names = fill(here)
    everturn.copy(here, there)
    for name in names:
        assert go_on(there, name) == go_on(here, name)


@in_a_circle
def test_a_retry_finds_in_the_target_what_was_written_in_the_source(source: Place, target: Place) -> None:
    here, there = source.open(), target.open()
    fill(here)
    everturn.copy(here, there)
    changes: list[Any] = [
        lambda store: store.add_messages(
            "rich", [ChatMessage("system", "be brief"), ChatMessage("user", HOSTILE)], key="begin"
        ),
        lambda store: store.add_summary(
            "rich", Summary("so far", [0.1, -2.0, 3.5], (1, 4), extra={"model": "m"}), key="sum up"
        ),
        lambda store: store.fork("rich", "forked", key="fork it"),
    ]
    for change in changes:
        assert change(there).replayed
        assert change(there) == change(here)
    with pytest.raises(KeyReused, match="used before"):
        say(there, "rich", "something else", key="begin")
    assert not say(there, "rich", "another", "branch", key="branch").replayed  # it was rolled back there, too


@in_a_circle
def test_searches_find_the_same(source: Place, target: Place) -> None:
    here, there = source.open(), target.open()
    fill(here)
    everturn.copy(here, there)
    assert there.search_summaries("rich", [1.0, 0.0, 0.0]) == here.search_summaries("rich", [1.0, 0.0, 0.0])
    found = [(match.entry.seq, match.entry) for match in here.find("deep", session_id="rich")]
    assert [(match.entry.seq, match.entry) for match in there.find("deep", session_id="rich")] == found
