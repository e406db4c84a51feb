"""Trim of a long history: read from the newest backwards, a page at a time, and as if it had been read at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st

from everturn import ChatMessage, MemoryStoreBackendError, Record, Summary, ToolCall
from everturn.backend import Query
from everturn.store import pages
from tests.store.places import Place
from tests.store.speech import calling, gives_up_after, made_up, result, say, say_each, system, user, words


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIRST_PAGE", 3)
    monkeypatch.setattr(pages, "LARGEST_PAGE", 4)


def long_talk(store: Any, session_id: str) -> None:
    """Every kind of entry, branches that were left, and an earlier trim."""
    store.add_messages(session_id, [system("s1"), user("1")])
    store.append(session_id, [ToolCall("f", {}), user("2"), Record("note", 1)])
    store.add_summary(session_id, Summary("so far", (1.0,), (1, 2)))
    store.add_messages(session_id, [user("3"), ChatMessage("developer", "s2")])
    receipt = store.add_messages(session_id, [user("4")])
    store.trim(session_id, max_messages=4)
    for number in range(6):
        store.replace(session_id, [user(f"other {number}")], after=receipt.seqs[0])
    store.append(session_id, [Record("note", 2), user("5"), calling("c1")])
    store.add_messages(session_id, [system("s3")])
    store.add_messages(session_id, [result("c1"), user("6")])
    say_each(store, session_id, *"789abcdefgh")


@pytest.mark.parametrize("most", [0, 1, 4, 7, 12, 15, 18, 19, 100])
@pytest.mark.parametrize("keep_system", [True, False])
def test_pages_change_nothing(store: Any, monkeypatch: pytest.MonkeyPatch, most: int, keep_system: bool) -> None:
    for name in ("at once", "by pages"):
        long_talk(store, name)
    store.trim("at once", max_messages=most, keep_system=keep_system)
    monkeypatch.setattr(pages, "FIRST_PAGE", 3)
    monkeypatch.setattr(pages, "LARGEST_PAGE", 4)
    store.trim("by pages", max_messages=most, keep_system=keep_system)
    assert words(store, "by pages") == words(store, "at once")
    assert store.info("by pages").messages == store.info("at once").messages == len(words(store, "at once"))
    assert store.verify("by pages").ok


@pytest.mark.usefixtures("small_pages")
def test_a_turn_that_lies_on_two_pages_stays_whole(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", *"23456789")
    say(store, "a", "x")
    store.trim("a", max_messages=5)
    assert words(store, "a") == ["x"]
    store.undo("a")
    store.trim("a", max_messages=9)
    assert words(store, "a") == [*"23456789", "x"]


@pytest.mark.usefixtures("small_pages")
def test_a_call_far_back_is_found_for_the_result_in_the_last_turn(store: Any) -> None:
    say_each(store, "a", *"12")
    store.add_messages("a", [user("3"), calling("c1")])
    say_each(store, "a", *"456789")
    store.add_messages("a", [result("c1")])
    store.trim("a", max_messages=2)
    assert words(store, "a") == ["3", None, *"456789", "done"]


def between_pages(*events: Callable[[], object]) -> Callable[[ChatMessage], int]:
    """A counter during which these happen: the first while the second page is looked at, the next with the third."""
    calls = count()
    left = list(events)

    def counter(_: ChatMessage) -> int:
        if next(calls) in (4, 8) and left:
            left.pop(0)()
        return 1

    return counter


@pytest.mark.usefixtures("small_pages")
def test_an_append_between_two_pages_stays(store: Any) -> None:
    say_each(store, "a", *"123456789")
    store.trim("a", max_tokens=6, count_tokens=between_pages(lambda: say(store, "a", "new")))
    assert words(store, "a") == [*"456789", "new"]


@pytest.mark.usefixtures("small_pages")
def test_a_rollback_between_two_pages_is_planned_anew(store: Any) -> None:
    say_each(store, "a", *"123456")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", *"789")
    rollback = lambda: store.rollback_to_snapshot("a", snapshot)  # noqa: E731 - a name for what happens
    store.trim("a", max_tokens=5, count_tokens=between_pages(rollback))
    assert words(store, "a") == [*"23456"]
    assert store.info("a").messages == 5


@pytest.mark.usefixtures("small_pages")
def test_a_head_that_was_moved_and_moved_back_between_pages_mixes_nothing(store: Any) -> None:
    """The state is the one that was seen; but a page that was read in between would be of another."""
    say_each(store, "a", *"0123456789ab")

    def there() -> None:
        store.clear("a")
        say(store, "a", "new")

    def and_back() -> None:
        store.undo("a")

    store.trim("a", max_tokens=9, count_tokens=between_pages(there, and_back))
    assert words(store, "a") == [*"3456789ab", "new"]


@pytest.mark.usefixtures("small_pages")
def test_an_erasure_between_two_pages_leaves_the_new_life_alone(store: Any) -> None:
    say_each(store, "a", *"123456789")

    def begin_anew() -> None:
        store.erase("a")
        say(store, "a", *"uvwxyz")

    store.trim("a", max_tokens=5, count_tokens=between_pages(begin_anew))
    assert words(store, "a") == [*"uvwxyz"]


def test_any_conversation_by_pages(place: Place, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    speakers = st.sampled_from([user, user, system])
    turns = st.lists(st.lists(speakers, min_size=1, max_size=5), min_size=1, max_size=8)

    @made_up(place, talk=turns, most=st.integers(0, 20), keep_system=st.booleans(), first=st.integers(1, 6))
    def check(talk: list[list[Any]], most: int, keep_system: bool, first: int) -> None:
        name = f"session {next(numbers)}"
        for number, turn in enumerate(talk):
            messages = [speaker(f"{number}.{part}") for part, speaker in enumerate(turn)]
            for half in ("at once ", "by pages "):
                store.add_messages(half + name, messages)
        with monkeypatch.context() as patched:
            store.trim("at once " + name, max_messages=most, keep_system=keep_system)
            patched.setattr(pages, "FIRST_PAGE", first)
            patched.setattr(pages, "LARGEST_PAGE", first + 1)
            store.trim("by pages " + name, max_messages=most, keep_system=keep_system)
        assert words(store, "by pages " + name) == words(store, "at once " + name)


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_a_trim_reads_only_what_it_needs(one_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(50):
        say(one_store, "a", *("x" for _ in range(100)))
    read = one_store._operations.backend.read
    seen: list[int] = []

    async def watched(query: Query, take: Any, deadline: float) -> Any:
        return await read(query, lambda rows: (seen.append(len(rows)), take(rows)), deadline)

    monkeypatch.setattr(one_store._operations.backend, "read", watched)
    one_store.trim("a", max_messages=100, keep_system=False)
    assert sum(seen) == pages.FIRST_PAGE


def test_a_trim_keeps_a_page_in_memory_and_not_the_history(one_store: Any) -> None:
    for _ in range(60):
        say(one_store, "a", *("x" * 200 for _ in range(1000)))
    one_store.get_history("a", limit=1)
    tracemalloc.start()
    with gives_up_after(60, one_store):  # counting what is allocated takes most of the time
        one_store.trim("a", max_messages=100)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 15 * 2**20, "60,000 messages are more than that"
    assert one_store.info("a").messages <= 1000


def test_a_trim_that_has_no_time_for_all_says_so_and_changes_nothing(
    one_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FIRST_PAGE", 10)
    monkeypatch.setattr(pages, "LARGEST_PAGE", 10)
    say_each(one_store, "a", *map(str, range(100)))
    backend = one_store._operations
    read, clock = backend.backend.read, backend.runtime.clock
    passed = 0.0

    async def slow(query: Query, take: Any, deadline: float) -> Any:
        nonlocal passed
        passed += 2.0
        return await read(query, take, deadline)

    monkeypatch.setattr(backend.backend, "read", slow)
    monkeypatch.setattr(type(backend.runtime), "clock", staticmethod(lambda: clock() + passed))
    with pytest.raises(MemoryStoreBackendError, match=r"of its 100 messages 30 .* 5 s.* larger timeout.*keep_system"):
        one_store.trim("a", max_messages=5)
    assert one_store.info("a").messages == 100
    one_store.trim("a", max_messages=5, keep_system=False)
    assert one_store.info("a").messages == 5
