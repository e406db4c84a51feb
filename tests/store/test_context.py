"""Context: the prompt for a model, of one moment, within its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, SnapshotNotFound, Summary, VersionConflict
from everturn.core.prompts import SUMMARY_PREFIX, estimate_tokens, size_of
from everturn.store import context as context_module
from tests.store.speech import calling, result, say, say_each, system, user, words
from tests.unit.prompt_rules import refused_by_anthropic, refused_by_openai


def said(context: Any) -> list[Any]:
    return [message.content for message in context.messages]


def test_a_context_without_bounds_is_the_history(store: Any) -> None:
    say_each(store, "a", *"123")
    context = store.get_context("a")
    assert said(context) == ["1", "2", "3"]
    assert (context.left_out, context.summaries, context.version) == (0, (), 3)
    assert context.tokens == sum(map(estimate_tokens, context.messages))


def test_a_context_has_the_newest_whole_turns_that_fit(store: Any) -> None:
    for question in "123":
        store.save_context("a", question, "answer")
    context = store.get_context("a", max_messages=5)
    assert (said(context), context.left_out) == (["2", "answer", "3", "answer"], 2)


def test_the_last_turn_is_always_there(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", "2", "3")
    assert said(store.get_context("a", max_messages=1)) == ["2", "3"]


def test_tokens_are_counted_by_the_callers_counter(store: Any) -> None:
    say_each(store, "a", "four", "three", "two")
    context = store.get_context("a", max_tokens=8, count_tokens=lambda message: len(message.text))
    assert (said(context), context.tokens, context.left_out) == (["three", "two"], 8, 1)


def test_bytes_are_those_of_the_json(store: Any) -> None:
    say_each(store, "a", *"123")
    size = size_of(user("1"))
    assert said(store.get_context("a", max_bytes=2 * size)) == ["2", "3"]
    assert said(store.get_context("a", max_bytes=3 * size - 1)) == ["2", "3"]
    assert said(store.get_context("a", max_bytes=3 * size)) == ["1", "2", "3"]


def test_a_tool_pair_is_never_split(store: Any) -> None:
    say(store, "a", "0")
    store.add_messages("a", [user("1"), calling("c")])
    store.add_messages("a", [result("c")])
    context = store.get_context("a", max_messages=1)
    assert (said(context), context.left_out) == (["1", None, "done"], 1)


def test_system_messages_come_first_and_count(store: Any) -> None:
    store.add_messages("a", [system("s1"), system("s2"), user("1")])
    say_each(store, "a", *"23456")
    context = store.get_context("a", max_messages=4)
    assert (said(context), context.left_out) == (["s1", "s2", "5", "6"], 4)


def test_system_messages_at_the_beginning_are_found_in_a_long_history(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_module, "FIRST_WINDOW", 2)
    say_each(store, "a", *"0123456789")
    store.replace("a", [system("s"), user("1")], after=0)
    for number in range(30):
        say(store, "a", str(number))
    assert said(store.get_context("a", max_messages=3)) == ["s", "28", "29"]


def test_kept_system_messages_stay_after_a_fold(store: Any) -> None:
    store.add_messages("a", [system("s"), user("1")])
    say_each(store, "a", *"2345")
    store.fold("a", lambda *_: "so far", max_messages=3)
    say_each(store, "a", *"6789")
    context = store.get_context("a", max_messages=4)
    assert said(context) == ["s", f"{SUMMARY_PREFIX}so far", "8", "9"]
    assert (context.left_out, [summary.text for summary in context.summaries]) == (4, ["so far"])
    shown = context.messages[1]
    assert (shown.role, shown.metadata) == ("system", {"summary": context.summaries[0].seq, "covers": [2, 4]})


def test_the_newest_fold_stands_for_those_before_it(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "FIRST_WINDOW", 1)
    for round_ in range(3):
        say_each(store, "a", *"12345678")
        store.fold("a", lambda *_, name=f"s{round_}": name, max_messages=5)
    assert said(store.get_context("a", max_messages=2)) == [f"{SUMMARY_PREFIX}s2", "8"]
    store.undo("a")
    assert said(store.get_context("a", max_messages=2)) == [f"{SUMMARY_PREFIX}s1", "8"]
    store.undo("a")
    store.undo("a")
    assert said(store.get_context("a", max_messages=2)) == ["7", "8"]


def test_a_trim_after_a_fold_leaves_the_summary(store: Any) -> None:
    say_each(store, "a", *"1234")
    store.fold("a", lambda *_: "so far", max_messages=2)
    say_each(store, "a", *"5678")
    store.trim("a", max_messages=2)
    assert said(store.get_context("a", max_messages=2)) == [f"{SUMMARY_PREFIX}so far", "8"]


def test_summaries_of_the_callers_own_stand_for_what_a_trim_hid(store: Any) -> None:
    say_each(store, "a", *"1234")
    store.add_summary("a", Summary("one and two", [1.0], (1, 2)))
    assert said(store.get_context("a")) == ["1", "2", "3", "4"]
    store.trim("a", max_messages=2)
    assert said(store.get_context("a")) == [f"{SUMMARY_PREFIX}one and two", "3", "4"]
    store.clear("a")
    assert said(store.get_context("a")) == []


def test_a_context_is_a_prompt_that_models_accept(store: Any) -> None:
    store.add_messages("a", [user("1"), calling("c", "d"), result("d"), result("x")])
    healed = store.get_context("a").messages
    assert refused_by_openai(healed) is refused_by_anthropic(healed) is None
    assert len(store.get_context("a", heal=False).messages) == 4


def test_a_context_is_an_expected_version(store: Any) -> None:
    absent = store.get_context("a", max_messages=3)
    assert (absent.messages, absent.version, absent.life) == ([], 0, "")
    say(store, "a", "1", expected_version=absent)
    context = store.get_context("a")
    say(store, "a", "2", expected_version=context)
    with pytest.raises(VersionConflict):
        say(store, "a", "3", expected_version=context)
    store.erase("a")
    say(store, "a", "1")
    with pytest.raises(VersionConflict, match="another life"):
        say(store, "a", "2", expected_version=context)


def test_a_context_of_the_past(store: Any) -> None:
    say_each(store, "a", *"12")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", *"34")
    assert said(store.get_context("a", at=snapshot, max_messages=1)) == ["2"]
    assert said(store.get_context("a", at=1)) == ["1"]
    with pytest.raises(SnapshotNotFound):
        store.get_context("a", at="none")
    with pytest.raises(InvalidInput):
        store.get_context("a", at=99)


def test_a_context_reads_no_more_than_it_needs(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_messages("a", [user(str(number)) for number in range(2000)])
    for number in range(40):
        say(store, "a", f"t{number}")
    taken: list[int] = []
    backend = store._operations.backend
    read = backend.read

    async def counting(query: Any, take: Any, deadline: float) -> Any:
        def taking(rows: Any) -> Any:
            taken.append(len(rows))
            return take(rows)

        return await read(query, taking, deadline)

    monkeypatch.setattr(backend, "read", counting)
    assert len(store.get_context("a", max_messages=10).messages) == 10
    assert sum(taken) < 64


@pytest.mark.parametrize("seed", range(5))
def test_pages_do_not_show(store: Any, seed: int) -> None:
    """Whatever the size of the first page, the context is the same."""
    import random

    rnd = random.Random(seed)
    for _ in range(12):
        turn: list[ChatMessage] = [user("x" * rnd.randrange(30)) for _ in range(rnd.randrange(1, 4))]
        if rnd.random() < 0.3:
            turn = [calling("c"), result("c")]
        store.add_messages("a", turn)
    for bound in range(1, 30, 3):
        by_size = store.get_context("a", max_messages=bound)
        by_tokens = store.get_context("a", max_tokens=bound, count_tokens=lambda _: 1)
        assert said(by_size) == said(by_tokens)
        trimmed = f"b{bound}"
        store.fork("a", trimmed)
        store.trim(trimmed, max_messages=bound)
        assert said(by_size) == words(store, trimmed)
        assert by_size.left_out == len(words(store, "a")) - len(by_size.messages)


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 0},
        {"max_tokens": 0},
        {"max_bytes": -1},
        {"max_messages": "3"},
        {"max_tokens": 5, "count_tokens": 7},
        {"max_tokens": 5, "count_tokens": lambda _: None},
        {"count_tokens": lambda _: 1.5},
    ],
)
def test_bad_arguments_are_refused(store: Any, options: dict[str, Any]) -> None:
    say_each(store, "a", *"123")
    with pytest.raises(InvalidInput):
        store.get_context("a", **options)


def test_an_error_of_the_counter_is_raised_as_it_is(store: Any) -> None:
    say_each(store, "a", *"123")
    with pytest.raises(ZeroDivisionError):
        store.get_context("a", max_tokens=5, count_tokens=lambda _: 1 // 0)
