"""Trim: what stays makes a prompt that a model accepts, whatever else happens meanwhile."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st

from everturn import ChatMessage, InvalidInput, Record, Summary, ToolCall
from tests.store.places import Place
from tests.store.speech import assistant, calling, made_up, result, say, say_each, system, user, words


def length(message: ChatMessage) -> int:
    return len(message.text)


def test_trim_keeps_the_newest(store: Any) -> None:
    say_each(store, "a", *"12345")
    store.trim("a", max_messages=2)
    assert words(store, "a") == ["4", "5"]
    assert store.info("a").messages == 2


def test_trim_keeps_whole_turns(store: Any) -> None:
    for question in "123":
        store.save_context("a", question, "answer")
    store.trim("a", max_messages=3)
    assert words(store, "a") == ["3", "answer"]


def test_trim_always_keeps_the_last_turn(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", "2", "3", "4")
    store.trim("a", max_messages=0)
    assert words(store, "a") == ["2", "3", "4"]


def test_trim_keeps_system_messages_wherever_they_stand(store: Any) -> None:
    store.add_messages("a", [system("s1"), user("1")])
    store.add_messages("a", [user("2"), ChatMessage("developer", "s2")])
    say_each(store, "a", "3", "4")
    store.trim("a", max_messages=3)
    assert words(store, "a") == ["s1", "s2", "4"]


def test_trim_may_let_system_messages_go(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", "1", "2")
    store.trim("a", max_messages=1, keep_system=False)
    assert words(store, "a") == ["2"]


def test_a_second_trim_keeps_system_messages_too(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", *"1234")
    store.trim("a", max_messages=3)
    store.trim("a", max_messages=2)
    assert words(store, "a") == ["s", "4"]


def test_trim_keeps_a_call_with_the_result_in_a_later_turn(store: Any) -> None:
    say(store, "a", "1")
    store.add_messages("a", [user("2"), calling("c1")])
    store.add_messages("a", [result("c1")])
    store.trim("a", max_messages=1)
    assert words(store, "a") == ["2", None, "done"]


def test_trim_drops_a_result_rather_than_its_call_alone(store: Any) -> None:
    store.add_messages("a", [user("1"), calling("c1")])
    store.add_messages("a", [result("c1")])
    say(store, "a", "2")
    store.trim("a", max_messages=2)
    assert words(store, "a") == ["2"]


def test_trim_knows_calls_among_parts(store: Any) -> None:
    store.add_messages("a", [ChatMessage("assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}])])
    store.add_messages("a", [ChatMessage("user", [{"type": "tool_result", "tool_use_id": "c", "content": "x"}])])
    store.trim("a", max_messages=1)
    assert len(store.get_history("a")) == 2


def test_trim_hides_tool_calls_and_records_but_no_summary(store: Any) -> None:
    store.append("a", [user("1"), ToolCall("f", {}), Record("r", 1), Summary("s", [1.0], (1, 1))])
    store.append("a", [user("2"), ToolCall("g", {}), Record("r", 2)])
    store.trim("a", max_messages=1)
    state = store.state("a")
    assert [call.name for call in state.tool_calls] == ["g"]
    assert [record.body for record in state.records] == [2]
    assert [summary.text for summary in store.get_summaries("a")] == ["s"]
    assert [hit.summary.text for hit in store.search_summaries("a", [1.0])] == ["s"]
    assert [entry.seq for entry in state.entries] == [4, 5, 6, 7]


def test_trim_by_tokens_uses_the_callers_counter(store: Any) -> None:
    say_each(store, "a", "aaaa", "bbb", "cc", "d")
    store.trim("a", max_tokens=5, count_tokens=length)
    assert words(store, "a") == ["cc", "d"]


def test_system_messages_count(store: Any) -> None:
    store.add_messages("a", [system("ssss")])
    say_each(store, "a", "aa", "bb", "cc")
    store.trim("a", max_tokens=8, count_tokens=length)
    assert words(store, "a") == ["ssss", "bb", "cc"]


def test_both_bounds_hold(store: Any) -> None:
    say_each(store, "a", "a", "b", "c", "dddd")
    store.trim("a", max_messages=3, max_tokens=5, count_tokens=length)
    assert words(store, "a") == ["c", "dddd"]


def test_trim_of_what_fits_changes_nothing(store: Any) -> None:
    say_each(store, "a", "1", "2")
    before = store.state("a")
    assert store.trim("a", max_messages=2).version == 2
    assert store.state("a") == before


def test_trim_of_an_absent_session_changes_nothing(store: Any) -> None:
    assert store.trim("a", max_messages=1).version == 0
    assert store.sessions().sessions == ()


def test_turns_after_a_trim_are_seen(store: Any) -> None:
    say_each(store, "a", *"123")
    store.trim("a", max_messages=1)
    say(store, "a", "4")
    assert words(store, "a") == ["3", "4"]


def test_limit_counts_what_a_trim_left(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", *"1234")
    store.trim("a", max_messages=3)
    assert words(store, "a", limit=3) == ["s", "3", "4"]
    assert words(store, "a", limit=2) == ["3", "4"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_messages": -1},
        {"max_messages": 1.5},
        {"max_tokens": 5},
        {"max_messages": 5, "count_tokens": length},
        {"max_tokens": -1, "count_tokens": length},
    ],
)
def test_a_trim_that_says_too_little_or_nonsense_is_refused(one_store: Any, options: dict[str, Any]) -> None:
    say(one_store, "a", "1")
    with pytest.raises(InvalidInput):
        one_store.trim("a", **options)


def test_a_counter_that_fails_fails_the_trim_and_changes_nothing(store: Any) -> None:
    say_each(store, "a", "1", "2")
    before = store.state("a")

    def broken(message: ChatMessage) -> int:
        raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        store.trim("a", max_tokens=1, count_tokens=broken)
    assert store.state("a") == before


# --- meanwhile ---------------------------------------------------------------------------------------------------


def meanwhile(act: Any) -> Any:
    """A counter of tokens during whose first call something else happens."""
    pending = [act]

    def count(message: ChatMessage) -> int:
        if pending:
            pending.pop()()
        return 1

    return count


def test_an_append_during_a_trim_is_harmless(store: Any) -> None:
    say_each(store, "a", *"12345")
    store.trim("a", max_tokens=2, count_tokens=meanwhile(lambda: say(store, "a", "6")))
    assert words(store, "a") == ["4", "5", "6"]
    assert store.info("a").messages == 3


def test_a_rollback_during_a_trim_makes_it_look_again(store: Any) -> None:
    say_each(store, "a", *"123")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", *"45")
    store.trim("a", max_tokens=2, count_tokens=meanwhile(lambda: store.rollback_to_snapshot("a", snapshot)))
    assert words(store, "a") == ["2", "3"]


def test_a_clear_during_a_trim_stays_a_clear(store: Any) -> None:
    say_each(store, "a", *"123")
    store.trim("a", max_tokens=2, count_tokens=meanwhile(lambda: store.clear("a")))
    assert words(store, "a") == []


def test_a_trim_during_a_trim_does_not_count_twice(store: Any) -> None:
    say_each(store, "a", *"12345")
    store.trim("a", max_tokens=2, count_tokens=meanwhile(lambda: store.trim("a", max_messages=3)))
    assert words(store, "a") == ["4", "5"]
    assert store.info("a").messages == 2


def test_a_trim_planned_for_one_life_is_not_done_to_the_next(store: Any) -> None:
    say_each(store, "a", *"1234")

    def begin_anew() -> None:
        store.erase("a")
        say(store, "a", *"wxyz")  # one turn, of as many messages

    store.trim("a", max_tokens=2, count_tokens=meanwhile(begin_anew))
    assert words(store, "a") == ["w", "x", "y", "z"]
    assert store.info("a").messages == 4


# --- any conversation --------------------------------------------------------------------------------------------


@st.composite
def turns(draw: Any) -> list[list[ChatMessage]]:
    """Conversations in which some turns call tools, and the results come in the same turn or a later one."""
    conversation: list[list[ChatMessage]] = []
    owed: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        turn = [result(owed.pop(0)) for _ in range(draw(st.integers(0, len(owed))))]
        speakers = draw(st.lists(st.sampled_from([user, assistant, system]), max_size=2))
        turn += [speaker(f"{number}.{part}") for part, speaker in enumerate(speakers)]
        if draw(st.booleans()):
            turn.append(calling(f"c{number}"))
            owed.append(f"c{number}")
            if draw(st.booleans()):
                turn.append(result(owed.pop()))
        conversation.append(turn or [user(f"{number}")])
    return conversation


def test_trim_never_breaks_a_prompt(place: Place, store: Any) -> None:
    numbers = count()

    @made_up(place, conversation=turns(), most=st.integers(0, 12))
    def check(conversation: list[list[ChatMessage]], most: int) -> None:
        name = f"session {next(numbers)}"
        for turn in conversation:
            store.add_messages(name, turn)
        before = store.get_history(name)
        store.trim(name, max_messages=most)
        after = store.get_history(name)
        kept = {message.seq for message in after}
        assert kept <= {message.seq for message in before}
        assert all(message.seq in kept for message in before if message.role == "system")
        assert all(message.seq in kept for message in before[-len(conversation[-1]) :])
        calls = {call["id"] for message in after for call in message.tool_calls or ()}
        assert all(message.tool_call_id in calls for message in after if message.role == "tool")
        results = {message.tool_call_id for message in before if message.role == "tool"}
        answered = {message.tool_call_id for message in after if message.role == "tool"}
        assert calls & results <= answered
        assert store.info(name).messages == len(after)
        others = [message for message in after if message.role != "system"]
        if others:  # whole turns: from its first message on that is no system message, all of the history is kept
            first = next(turn for turn in _seqs(conversation) if others[0].seq in turn)
            assert all(seq in kept for seq in range(first[0], before[-1].seq + 1))
        assert store.verify(name).ok
        if len(after) < len(before):
            store.undo(name)
        assert store.get_history(name) == before


def _seqs(conversation: list[list[ChatMessage]]) -> list[range]:
    ranges, start = [], 1
    for turn in conversation:
        ranges.append(range(start, start + len(turn)))
        start += len(turn)
    return ranges
