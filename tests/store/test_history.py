"""Reading a history: limits, windows, past states, healing."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, SnapshotNotFound, ToolCall
from tests.store.speech import assistant, calling, result, say, say_each, user, words


@pytest.fixture
def digits(store: Any) -> Any:
    """A store whose session "a" holds "1" to "9", each with the seq it says."""
    say_each(store, "a", *"123456789")
    return store


def test_an_absent_session_reads_as_empty(store: Any) -> None:
    assert store.get_history("nobody") == []
    assert store.get_tool_calls("nobody") == []
    assert store.get_summaries("nobody") == []
    assert store.list_snapshots("nobody") == []
    assert store.load_memory("nobody") == []
    assert store.changes("nobody") == []
    assert store.search_summaries("nobody", [1.0]) == []


def test_messages_carry_seq_and_time(store: Any, clock: Any) -> None:
    say(store, "a", "one")
    (message,) = store.get_history("a")
    assert (message.seq, message.created_at) == (1, clock.now)


def test_seq_and_time_take_no_part_in_equality(store: Any) -> None:
    say(store, "a", "one")
    assert store.get_history("a") == [user("one")]


def test_limit_gives_the_latest(digits: Any) -> None:
    assert words(digits, "a", limit=3) == ["7", "8", "9"]


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (9, 9), (10, 9), (10**6, 9)])
def test_limit_is_at_most(digits: Any, limit: int, count: int) -> None:
    assert len(digits.get_history("a", limit=limit)) == count


def test_limit_counts_messages_and_no_other_entries(store: Any) -> None:
    say_each(store, "a", "one", "two")
    for _ in range(3):
        store.add_tool_call("a", ToolCall("f", {}))
    assert words(store, "a", limit=2) == ["one", "two"]


def test_limit_may_cut_inside_a_turn(store: Any) -> None:
    say(store, "a", "one", "two", "three")
    assert words(store, "a", limit=2) == ["two", "three"]


def test_limit_reaches_across_a_rollback(store: Any) -> None:
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", "x", "y")
    store.rollback_to_snapshot("a", snapshot)
    say_each(store, "a", "3")
    assert words(store, "a", limit=2) == ["2", "3"]
    assert words(store, "a", limit=3) == ["1", "2", "3"]


def test_limit_never_begins_with_a_result_whose_call_is_cut_off(store: Any) -> None:
    store.add_messages("a", [user("q"), calling("c1", "c2"), result("c1"), result("c2"), assistant("a")])
    assert words(store, "a", limit=3) == ["a"]
    assert words(store, "a", limit=2) == ["a"]
    assert len(store.get_history("a", limit=4)) == 4


def test_limit_never_begins_with_a_result_among_parts(store: Any) -> None:
    call = ChatMessage("assistant", [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}])
    answer = ChatMessage("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}])
    store.add_messages("a", [call, answer, assistant("it is 42")])
    assert words(store, "a", limit=2) == ["it is 42"]


def test_a_result_that_nothing_cuts_off_is_shown_as_it_was_written(store: Any) -> None:
    store.add_messages("a", [result("c1"), user("x")])
    assert len(store.get_history("a")) == 2
    assert len(store.get_history("a", limit=2)) == 2


def test_before_and_after_exclude_the_seq_they_name(digits: Any) -> None:
    assert words(digits, "a", after=3, before=6) == ["4", "5"]


@pytest.mark.parametrize("after", [0, 1, 5, 9, 10])
def test_a_window_is_what_lies_between(digits: Any, after: int) -> None:
    for before in range(1, 11):
        assert words(digits, "a", after=after, before=before) == [d for d in "123456789" if after < int(d) < before]


def test_there_is_nothing_before_the_first_entry(digits: Any) -> None:
    assert words(digits, "a", before=1) == []
    assert words(digits, "a", before=0) == []


def test_limit_within_a_window_gives_the_latest_of_it(digits: Any) -> None:
    assert words(digits, "a", after=2, before=8, limit=2) == ["6", "7"]


def test_pages_backwards_meet_every_message_once(digits: Any) -> None:
    seen: list[str] = []
    before = None
    while page := digits.get_history("a", limit=4, before=before):
        seen = [message.content for message in page] + seen
        before = page[0].seq
    assert seen == list("123456789")


def test_a_past_version_can_be_read(digits: Any) -> None:
    assert words(digits, "a", at=4) == list("1234")
    assert words(digits, "a", at=0) == []


def test_a_past_version_reads_as_it_was_through_trims_and_clears(digits: Any) -> None:
    digits.trim("a", max_messages=2)
    digits.clear("a")
    assert words(digits, "a", at=9) == list("123456789")
    assert words(digits, "a", at=10) == ["8", "9"]
    assert words(digits, "a", at=11) == []


def test_a_snapshot_can_be_read_without_returning_to_it(digits: Any) -> None:
    snapshot = digits.save_snapshot("a")
    say(digits, "a", "more")
    assert words(digits, "a", at=snapshot) == words(digits, "a", at=snapshot.id) == list("123456789")
    assert words(digits, "a")[-1] == "more"


def test_limits_apply_to_a_past_state_too(digits: Any) -> None:
    assert words(digits, "a", at=4, limit=2, before=4) == ["2", "3"]


@pytest.mark.parametrize("at", [10, 2**32, 2**32 + 1, 2**33 + 1, 2**63, 10**30])
def test_a_version_never_reached_is_refused(digits: Any, at: int) -> None:
    # Neighbours: a version beyond this session's own numbers must not be looked for among theirs.
    for name in ("b", "c", "d"):
        say(digits, name, "another's")
    with pytest.raises(InvalidInput, match="version"):
        digits.get_history("a", at=at)


def test_a_snapshot_nobody_took_is_refused(digits: Any) -> None:
    with pytest.raises(SnapshotNotFound) as caught:
        digits.get_history("a", at="no-such")
    assert (caught.value.session_id, caught.value.snapshot) == ("a", "no-such")


@pytest.mark.parametrize("name", ["limit", "before", "after", "at"])
@pytest.mark.parametrize("value", [-1, 1.5, True, b"1", [1]])
def test_numbers_that_are_none_are_refused(one_store: Any, name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name}: "):
        one_store.get_history("a", **{name: value})


@pytest.mark.parametrize("name", ["limit", "before", "after"])
def test_huge_numbers_are_numbers(digits: Any, name: str) -> None:
    expected = [] if name == "after" else list("123456789")
    assert words(digits, "a", **{name: 2**70}) == expected


def test_an_unknown_way_with_corruption_is_refused(one_store: Any) -> None:
    with pytest.raises(InvalidInput, match="on_corrupt"):
        one_store.get_history("a", on_corrupt="ignore")


# --- healing ---------------------------------------------------------------------------------------------------


def test_healing_answers_an_unanswered_call(store: Any) -> None:
    store.add_messages("a", [user("q"), calling("c1")])
    *_, healed = store.get_history("a", heal=True)
    assert (healed.role, healed.tool_call_id, healed.seq) == ("tool", "c1", None)
    assert healed.metadata == {"healed": True}


def test_healing_stores_nothing(store: Any) -> None:
    store.add_messages("a", [user("q"), calling("c1")])
    before = store.state("a")
    store.get_history("a", heal=True)
    assert store.state("a") == before


def test_healing_puts_the_result_behind_those_that_are_there(store: Any) -> None:
    store.add_messages("a", [calling("c1", "c2"), result("c1"), user("and?")])
    history = store.get_history("a", heal=True)
    assert [message.tool_call_id for message in history] == [None, "c1", "c2", None]


def test_healing_leaves_a_whole_history_alone(store: Any) -> None:
    store.add_messages("a", [calling("c1"), result("c1"), assistant("done")])
    assert store.get_history("a", heal=True) == store.get_history("a")


def test_without_healing_an_unanswered_call_is_shown_as_it_is(store: Any) -> None:
    store.add_messages("a", [calling("c1")])
    assert len(store.get_history("a")) == 1


def test_healing_knows_calls_among_parts(store: Any) -> None:
    store.add_messages("a", [ChatMessage("assistant", [{"type": "tool_use", "id": "c9", "name": "f", "input": {}}])])
    (part,) = store.get_history("a", heal=True)[-1].content
    assert (part["type"], part["tool_use_id"], part["is_error"]) == ("tool_result", "c9", True)


def test_healing_leaves_out_results_that_answer_nothing_or_answer_twice(store: Any) -> None:
    store.add_messages("a", [result("c0"), user("q"), calling("c1"), result("c1"), result("c1")])
    assert [message.tool_call_id for message in store.get_history("a", heal=True)] == [None, None, "c1"]
