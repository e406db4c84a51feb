"""Context: the prompt for a model, of one moment, within its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, Record, SnapshotNotFound, Summary, ToolCall, VersionConflict
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


def test_results_that_healing_adds_count_too(store: Any) -> None:
    """A worker that died left a call without a result; a prompt with the synthetic one is within the bounds, too."""
    say(store, "a", "1")
    store.add_messages("a", [calling("c", "d")])
    say(store, "a", "2")
    say(store, "a", "3")
    assert said(store.get_context("a", max_messages=4)) == ["2", "3"]
    assert store.get_context("a", max_messages=4).left_out == 2
    assert len(store.get_context("a", max_messages=5).messages) == 5
    whole = store.get_context("a", max_messages=5)
    size = sum(map(size_of, whole.messages))
    for bound, exactly in (("max_tokens", whole.tokens), ("max_bytes", size)):
        assert said(store.get_context("a", **{bound: exactly})) == said(whole)
        assert said(store.get_context("a", **{bound: exactly - 1})) == ["2", "3"]


def test_a_last_turn_whose_calls_have_no_results_is_there_whole(store: Any) -> None:
    say(store, "a", "1")
    store.add_messages("a", [user("2"), calling("c", "d")])
    for bound in ({"max_messages": 1}, {"max_tokens": 1}, {"max_bytes": 1}):
        context = store.get_context("a", **bound)
        assert [message.role for message in context.messages] == ["user", "assistant", "tool", "tool"]
        assert context.left_out == 1


def test_a_summary_and_a_healed_result_bring_no_field_that_an_api_refuses(store: Any) -> None:
    say_each(store, "a", *"1234")
    store.fold("a", lambda *_: "so far", max_messages=2)
    store.add_messages("a", [user("5"), calling("c")])
    messages = store.get_context("a").messages
    assert [sorted(message.metadata) for message in messages if message.metadata] == [["covers", "summary"], ["healed"]]
    fields = {name for message in messages for name in message.to_prompt()}
    assert fields == {"role", "content", "tool_calls", "tool_call_id"}


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


def long(store: Any) -> None:
    store.add_messages("a", [system("s"), user("0")])
    say_each(store, "a", *map(str, range(40)))


def without_system_messages(store: Any) -> None:
    say_each(store, "a", *map(str, range(40)))


def folded(store: Any) -> None:
    long(store)
    store.fold("a", lambda *_: "so far", max_messages=30)
    say_each(store, "a", *map(str, range(20)))


def folded_twice(store: Any) -> None:
    folded(store)
    store.fold("a", lambda *_: "further", max_messages=30)
    say_each(store, "a", *map(str, range(20)))


def trimmed(store: Any) -> None:
    long(store)
    store.trim("a", max_messages=25)


def edited(store: Any) -> None:
    long(store)
    for number in range(20):
        after = store.get_history("a")[-1].seq
        store.replace("a", [user("dropped")], after=after)
        store.replace("a", [user(f"r{number}")], after=after)


def with_records(store: Any) -> None:
    store.add_messages("a", [system("s"), user("0")])
    for number in range(40):
        store.append("a", [ToolCall("f", {}), user(str(number)), Record("r", number)])


PASTS = [long, without_system_messages, folded, folded_twice, trimmed, edited, with_records]


@pytest.fixture
def reads(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the queries that the store sends to its backend."""
    queries: list[Any] = []
    backend = store._operations.backend
    read = backend.read

    async def recording(query: Any, take: Any, deadline: float) -> Any:
        queries.append(query)
        return await read(query, take, deadline)

    monkeypatch.setattr(backend, "read", recording)
    return queries


@pytest.mark.parametrize("past", PASTS, ids=lambda past: past.__name__)
def test_a_context_is_one_request(store: Any, reads: list[Any], past: Any) -> None:
    """The same messages are found as where the whole history is read."""
    past(store)
    version = store.info("a").version
    for options in ({"max_messages": 10}, {"max_tokens": 60}, {"max_bytes": 300}, {}):
        reads.clear()
        context = store.get_context("a", **options)
        assert len(reads) == 1
        assert (context.version, context.left_out) == (
            version,
            store.info("a").messages - len([one for one in context.messages if "summary" not in one.metadata]),
        )
    whole = said(store.get_context("a"))
    shown = said(store.get_context("a", max_messages=10))
    front = next((at for at, text in enumerate(shown) if text != "s" and SUMMARY_PREFIX not in text), 0)
    assert shown == whole[:front] + whole[front - 10 :]
    assert ("s" in shown) == (past is not without_system_messages)
    assert any(SUMMARY_PREFIX in text for text in shown) == (past in (folded, folded_twice))


@pytest.mark.parametrize("count", [4, 5, 20])
def test_many_system_messages_at_the_beginning_are_all_found(store: Any, count: int) -> None:
    """Also if they are more than come along with the latest messages."""
    store.append("a", [*(system(f"s{number}") for number in range(count)), user("0")])
    say_each(store, "a", *map(str, range(40)))
    context = store.get_context("a", max_messages=count + 2)
    assert said(context) == [*(f"s{number}" for number in range(count)), "38", "39"]


def test_system_messages_behind_other_entries_are_found(store: Any) -> None:
    store.append("a", [*(Record("r", number) for number in range(30)), system("s"), user("0")])
    say_each(store, "a", *map(str, range(40)))
    assert said(store.get_context("a", max_messages=2)) == ["s", "39"]


def test_many_summaries_of_the_callers_own_are_all_found(store: Any) -> None:
    """Also if they are more than come along with the latest messages. The same after an undo, if turns followed."""
    say_each(store, "a", *"1234567890")
    for seq in range(1, 6):
        store.add_summary("a", Summary(f"s{seq}", [1.0], (seq, seq)))
    say_each(store, "a", *"abc")
    store.trim("a", max_messages=5)
    mine = [f"{SUMMARY_PREFIX}s{seq}" for seq in range(1, 6)]
    assert said(store.get_context("a", max_messages=7)) == [*mine, "b", "c"]
    store.fold("a", lambda *_: "all", max_messages=2)
    say_each(store, "a", *"de")
    assert said(store.get_context("a", max_messages=6))[-1] == "e"
    store.undo("a")
    assert said(store.get_context("a", max_messages=7)) == [*mine, "d", "e"]


def test_a_caller_may_render_the_summaries(store: Any) -> None:
    """A summary as a message says so in its metadata: so it can be left out, and written in another way."""
    folded(store)
    context = store.get_context("a", max_messages=5)
    own = [message for message in context.messages if "summary" not in message.metadata]
    rendered = [user(f"<summary>{summary.text}</summary>") for summary in context.summaries]
    assert [message.content for message in [*own[:1], *rendered, *own[1:]]] == [
        "s",
        "<summary>so far</summary>",
        *("17", "18", "19"),
    ]
    assert [message.metadata["summary"] for message in context.messages if message.metadata] == [
        summary.seq for summary in context.summaries
    ]


def test_images_count_as_they_are_sent(store: Any) -> None:
    """Many images exceed the size of a request long before the tokens of a model."""

    def image(number: int) -> ChatMessage:
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 10_000}"}}
        return ChatMessage("user", [{"type": "text", "text": str(number)}, part])

    for number in range(8):
        store.add_messages("a", [image(number), ChatMessage("assistant", "I see.")])
    context = store.get_context("a", max_bytes=35_000, max_tokens=1_000_000)
    assert (len(context.messages), context.left_out) == (6, 10)
    assert sum(map(size_of, context.messages)) <= 35_000 < sum(map(size_of, store.get_history("a")[-8:]))
    assert len(store.get_context("a", max_tokens=1_000_000).messages) == 16


def test_a_tokenizer_is_asked_once_for_each_message(store: Any) -> None:
    """And not for older ones that cannot fit: a tokenizer takes long."""
    say_each(store, "a", *map(str, range(100)))
    asked: list[Any] = []

    def count(message: ChatMessage) -> int:
        asked.append(message.seq)
        return 1

    context = store.get_context("a", max_tokens=10, count_tokens=count)
    assert (len(context.messages), context.tokens) == (10, 10)
    assert sorted(asked) == list(range(90, 101))


async def apart(change: Callable[[], object]) -> None:
    """Make a change from inside a call of the store: in another thread if a loop runs here, which the change needs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        change()
    else:
        await asyncio.to_thread(change)


def test_a_context_that_needs_more_pages_is_of_one_state(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written between two of its pages is not in it; after a rollback in between all is read again."""
    for number in range(40):
        store.save_context("a", str(number), "")
    backend = store._operations.backend
    read = backend.read
    meanwhile: list[Any] = []

    async def interrupted(query: Any, take: Any, deadline: float) -> Any:
        reading = await read(query, take, deadline)
        if meanwhile:
            monkeypatch.setattr(backend, "read", read)
            await apart(meanwhile.pop())
            monkeypatch.setattr(backend, "read", interrupted)
        return reading

    monkeypatch.setattr(backend, "read", interrupted)
    bounds = {"max_tokens": 60, "count_tokens": lambda _: 1}
    for change in (lambda: say(store, "a", "new"), lambda: store.rollback("a", 30), lambda: store.clear("a")):
        before = [message.content for message in store.get_history("a")]
        meanwhile.append(change)
        context = store.get_context("a", **bounds)
        assert not meanwhile
        whole = said(context)
        assert whole in (before[-len(whole) :], [one.content for one in store.get_history("a")][-60:])


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
