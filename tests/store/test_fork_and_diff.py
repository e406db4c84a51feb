"""Forks copy a state into a session of its own; diffs compare two states of one session."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, KeyReused, Record, SessionNotFound, SnapshotNotFound, Summary, ToolCall
from tests.store.places import Place
from tests.store.speech import say, say_each, system, user, words


def test_a_fork_shows_what_its_origin_shows(store: Any) -> None:
    store.append("a", [user("1"), ToolCall("f", {}), Summary("s", [1.0], (1, 1)), Record("r", {})])
    store.fork("a", "b")
    assert store.state("b").entries == store.state("a").entries
    assert [entry.seq for entry in store.state("b").entries] == [1, 2, 3, 4]


def test_a_fork_has_a_life_and_versions_of_its_own(store: Any) -> None:
    origin = say_each(store, "a", "1", "2")[-1]
    receipt = store.fork("a", "b")
    assert (receipt.session_id, receipt.version, receipt.seqs) == ("b", 1, ())
    assert receipt.life != origin.life


def test_a_fork_says_where_it_came_from(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    assert store.info("b").forked_from == store.state("b").forked_from == "a"
    assert store.info("a").forked_from is None


def test_a_fork_and_its_origin_go_separate_ways(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    say(store, "a", "2")
    say(store, "b", "3")
    store.clear("a")
    assert (words(store, "a"), words(store, "b")) == ([], ["1", "3"])


def test_a_fork_can_start_from_the_past(store: Any) -> None:
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", "3", "4")
    store.fork("a", "at-snapshot", at=snapshot)
    store.fork("a", "at-version", at=1)
    store.fork("a", "at-nothing", at=0)
    assert words(store, "at-snapshot") == ["1", "2"]
    assert words(store, "at-version") == ["1"]
    assert words(store, "at-nothing") == []


def test_a_fork_of_a_trimmed_history_is_trimmed(store: Any) -> None:
    store.append("a", [system("s"), Summary("old", [1.0], (1, 1))])
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=2)
    store.fork("a", "b")
    assert store.state("b").entries == store.state("a").entries
    assert words(store, "b") == ["s", "3"]
    say(store, "b", "4")
    assert words(store, "b") == ["s", "3", "4"]
    assert store.verify("b").ok


def test_a_fork_of_a_branched_history_follows_the_branch(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.replace("a", [user("4")], after=2)
    store.replace("a", [user("5"), user("6")], after=1)
    store.fork("a", "b")
    say(store, "b", "7")
    assert words(store, "b") == ["1", "5", "6", "7"]
    assert store.verify("b").ok


@pytest.mark.parametrize("hide", [lambda store: store.trim("a", max_messages=1), lambda store: store.clear("a")])
def test_a_fork_of_what_was_cut_back_shows_what_is_said_in_it(store: Any, hide: Any) -> None:
    """Its log is shorter than what was hidden in the other: the same seqs, but other entries."""
    say_each(store, "a", "1", "2", "3")
    hide(store)
    store.replace("a", [], after=1)
    store.fork("a", "b")
    say_each(store, "b", "4", "5")
    assert words(store, "b") == ["4", "5"]
    assert store.verify("b").ok


def test_snapshots_undo_steps_and_keys_stay_behind(store: Any) -> None:
    say(store, "a", "1", key="k")
    snapshot = store.save_snapshot("a")
    store.replace("a", [user("2")])
    store.fork("a", "b")
    assert store.list_snapshots("b") == []
    assert store.info("b").undo_steps == 0
    with pytest.raises(SnapshotNotFound):
        store.rollback_to_snapshot("b", snapshot)
    assert not say(store, "b", "1", key="k").replayed


def test_a_fork_carries_only_what_is_shown(store: Any) -> None:
    say_each(store, "a", "dropped", "hidden")
    store.replace("a", [user("shown")])
    store.fork("a", "b")
    assert store.info("b").bytes < store.info("a").bytes
    assert store.verify("b").entries == 1


def test_a_key_that_the_target_knows_for_something_else_is_refused_as_such(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b", key="of the fork")
    say(store, "b", "2", key="of a turn")
    with pytest.raises(KeyReused, match=r"^the key was used before in session 'b' with other content"):
        store.fork("a", "b", key="of a turn")
    assert store.fork("a", "b", key="of the fork").replayed
    assert words(store, "b") == ["1", "2"]


def test_a_fork_into_a_session_that_exists_is_refused(store: Any) -> None:
    say(store, "a", "1")
    say(store, "b", "2")
    with pytest.raises(InvalidInput, match=r"^new_session_id: .*exists"):
        store.fork("a", "b")
    assert words(store, "b") == ["2"]


def test_a_fork_into_itself_is_refused(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(InvalidInput):
        store.fork("a", "a")


def test_a_fork_of_nothing_is_refused(store: Any) -> None:
    with pytest.raises(SessionNotFound) as caught:
        store.fork("nobody", "b")
    assert caught.value.session_id == "nobody"
    assert store.sessions().sessions == ()


def test_a_fork_of_an_unknown_past_is_refused(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(SnapshotNotFound):
        store.fork("a", "b", at="no-such")
    with pytest.raises(InvalidInput, match="version"):
        store.fork("a", "b", at=9)
    assert [info.session_id for info in store.sessions().sessions] == ["a"]


def test_a_fork_lives_as_long_as_the_store_says(place: Place) -> None:
    store = place.open(ttl=50)
    say(store, "a", "1")
    store.set_ttl("a", 10)
    store.fork("a", "b")
    assert store.info("b").ttl == 50


def test_a_fork_of_a_fork_is_a_fork(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    say(store, "b", "2")
    store.fork("b", "c")
    assert words(store, "c") == ["1", "2"]
    assert store.info("c").forked_from == "b"


# --- diff ------------------------------------------------------------------------------------------------------------


def test_a_diff_says_what_came_and_what_went(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    store.replace("a", [user("4"), ToolCall("f", {})], after=1)
    diff = store.diff("a", snapshot)
    assert diff.session_id == "a"
    assert diff.added == (user("4"), ToolCall("f", {}))
    assert [entry.content for entry in diff.removed] == ["2", "3"]


def test_a_diff_takes_versions_and_snapshots(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    assert [entry.content for entry in store.diff("a", 1, snapshot).added] == ["2", "3"]
    assert [entry.content for entry in store.diff("a", snapshot.id, 1).removed] == ["2", "3"]
    assert [entry.content for entry in store.diff("a", 0).added] == ["1", "2", "3"]


def test_equal_states_have_no_diff(store: Any) -> None:
    say(store, "a", "1")
    diff = store.diff("a", 1, store.save_snapshot("a"))
    assert (diff.added, diff.removed) == ((), ())


def test_entries_are_compared_by_place_and_not_by_words(store: Any) -> None:
    say(store, "a", "same")
    store.replace("a", [user("same")])
    diff = store.diff("a", 1)
    assert ([entry.seq for entry in diff.added], [entry.seq for entry in diff.removed]) == ([2], [1])


def test_a_diff_with_an_unknown_state_is_refused(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(SnapshotNotFound):
        store.diff("a", "no-such")
    with pytest.raises(InvalidInput):
        store.diff("a", 1, 7)


def test_both_reads_of_a_diff_have_one_time_out(one_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    say(one_store, "a", "1")
    read = one_store._operations.backend.read
    deadlines: list[float] = []

    async def watched(query: Any, take: Any, deadline: float) -> Any:
        deadlines.append(deadline)
        return await read(query, take, deadline)

    monkeypatch.setattr(one_store._operations.backend, "read", watched)
    one_store.diff("a", 1)
    assert len(deadlines) == 2
    assert len(set(deadlines)) == 1
