"""state, info and changes: what a session is, comparable, cheap, and one change at a time."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn import InvalidInput, Record, SessionNotFound, Summary, ToolCall
from tests.store.places import Clock
from tests.store.speech import say, say_each, user


def story(store: Any) -> None:
    store.append("a", [user("1"), ToolCall("f", {}), Summary("s", [1.0], (1, 1)), Record("r", {"x": 1})])
    store.save_snapshot("a", "here")
    store.set_ttl("a", 1000)
    store.replace("a", [user("2")], after=1)


def test_a_state_holds_everything_that_can_be_compared(store: Any) -> None:
    story(store)
    state = store.state("a")
    assert (state.session_id, state.version, state.last_seq) == ("a", 4, 5)
    assert state.messages == (user("1"), user("2"))
    assert (state.snapshots, state.undo_steps, state.ttl, state.forked_from) == ((("here", 2),), 1, 1000.0, None)


def test_two_stores_with_the_same_story_are_in_the_same_state(store: Any) -> None:
    story(store)
    with everturn.open("sqlite://") as other:
        story(other)
        assert store.state("a") == other.state("a")
        say(other, "a", "3")
        assert store.state("a") != other.state("a")


def test_states_sort_their_entries_by_kind(store: Any) -> None:
    store.append("a", [user("1"), ToolCall("f", {}), Summary("s", [1.0], (1, 1)), Record("r", {"x": 1})])
    state = store.state("a")
    assert [len(part) for part in (state.messages, state.tool_calls, state.summaries, state.records)] == [1, 1, 1, 1]


def test_a_past_state_has_the_entries_of_then(store: Any) -> None:
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    store.clear("a")
    assert store.state("a", at=1).messages == (user("1"),)
    assert store.state("a", at=snapshot).messages == (user("1"), user("2"))
    assert store.state("a").messages == ()


def test_a_state_can_be_read_in_part(store: Any) -> None:
    for number in range(3):
        store.append("a", [user(str(number)), Record("even", number), Record("odd", number)])
    whole = store.state("a")
    assert [entry.seq for entry in store.state("a", after=6).entries] == [7, 8, 9]
    assert [entry.seq for entry in store.state("a", before=3).entries] == [1, 2]
    assert [entry.seq for entry in store.state("a", after=3, before=6).entries] == [4, 5]
    assert [entry.body for entry in store.state("a", kind="odd").entries] == [0, 1, 2]
    assert [entry.seq for entry in store.state("a", kind="odd", after=3, before=9).entries] == [6]
    assert store.state("a", kind="message", after=1).entries == (user("1"), user("2"))
    assert store.state("a", kind="none of these").entries == ()
    part = store.state("a", after=8)
    assert (part.version, part.last_seq, part.life) == (whole.version, whole.last_seq, whole.life)
    store.replace("a", [Record("odd", 9)], after=2)
    assert [entry.seq for entry in store.state("a", after=1).entries] == [2, 10]
    assert [entry.seq for entry in store.state("a", at=3, kind="odd", after=3).entries] == [6, 9]


@pytest.mark.parametrize("part", [{"kind": "a\0"}, {"kind": 1}, {"after": -1}, {"before": "1"}])
def test_a_part_that_cannot_be_is_refused(one_store: Any, part: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        one_store.state("a", **part)


def test_the_state_of_an_absent_session_is_empty(store: Any) -> None:
    state = store.state("a")
    assert (state.version, state.last_seq, state.entries, state.snapshots) == (0, 0, (), ())


def test_info_tells_the_facts(store: Any, clock: Clock) -> None:
    receipt = say_each(store, "a", "1", "2")[-1]
    began = clock.now
    clock.advance(5)
    store.save_snapshot("a")
    store.replace("a", [user("3")], after=1)
    info = store.info("a")
    assert (info.session_id, info.life, info.version) == ("a", receipt.life, 4)
    assert (info.messages, info.last_seq, info.snapshots, info.undo_steps) == (2, 3, 1, 1)
    assert (info.created_at, info.changed_at) == (began, clock.now)
    assert (info.ttl, info.expires_at, info.forked_from) == (None, None, None)


def test_info_counts_the_stored_bytes(store: Any) -> None:
    say(store, "a", "x" * 1000)
    first = store.info("a").bytes
    say(store, "a", "x" * 1000)
    assert 1000 < first < 1100
    assert store.info("a").bytes == 2 * first


def test_info_of_an_absent_session_is_refused(store: Any) -> None:
    with pytest.raises(SessionNotFound, match="there is no session 'nobody'") as caught:
        store.info("nobody")
    assert caught.value.session_id == "nobody"


def test_changes_tell_what_led_here_newest_first(store: Any) -> None:
    say(store, "a", "1", "2")
    snapshot = store.save_snapshot("a", "here")
    store.replace("a", [user("3")], after=1)
    store.trim("a", max_messages=1)
    store.undo("a")
    store.rollback_to_snapshot("a", snapshot)
    store.clear("a")
    store.set_ttl("a", 5)
    store.delete_snapshot("a", snapshot)
    changes = store.changes("a")
    assert [change.version for change in changes] == list(range(9, 0, -1))
    kinds = ["delete_snapshot", "ttl", "clear", "rollback", "undo", "trim", "replace", "snapshot", "append"]
    assert [change.kind for change in changes] == kinds
    assert changes[-1].seqs == (1, 2)
    assert changes[-3].seqs == (3,)
    assert (changes[-2].snapshot, changes[-2].label) == (snapshot.id, "here")
    assert changes[3].snapshot == changes[0].snapshot == snapshot.id


def test_a_fork_begins_with_a_fork(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    assert [(change.version, change.kind) for change in store.changes("b")] == [(1, "fork")]


def test_changes_have_a_limit(store: Any) -> None:
    say_each(store, "a", *"12345")
    assert [change.version for change in store.changes("a", limit=2)] == [5, 4]
    assert [change.version for change in store.changes("a", 2)] == [5, 4]
    assert store.changes("a", limit=0) == []


def test_what_changed_nothing_is_not_in_the_log(store: Any) -> None:
    say(store, "a", "1", key="k")
    say(store, "a", "1", key="k")
    store.trim("a", max_messages=9)
    assert len(store.changes("a")) == 1


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True])
def test_a_limit_of_changes_that_is_none_is_refused(one_store: Any, limit: object) -> None:
    with pytest.raises(InvalidInput, match=r"^limit: "):
        one_store.changes("a", limit=limit)
