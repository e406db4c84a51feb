"""Listing sessions: prefixes, pages, and pages while things change."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, Unsupported
from tests.store.places import Clock
from tests.store.speech import say


def names(page: Any) -> list[str]:
    return [info.session_id for info in page.sessions]


def all_pages(store: Any, *, meanwhile: Any = lambda _: None, **options: Any) -> list[str]:
    """Every name on every page; `meanwhile` is called with the number of each page that was read."""
    found: list[str] = []
    page = None
    for number in range(1000):
        listed = store.sessions(page=page, **options)
        found += names(listed)
        page = listed.next
        if page is None:
            return found
        meanwhile(number)
    raise AssertionError("the pages do not end")


def begin(store: Any, *session_ids: str) -> None:
    for session_id in session_ids:
        say(store, session_id, "x")


def test_sessions_are_listed_by_name(store: Any) -> None:
    begin(store, "b", "c", "a", "B", "é", "z")
    assert names(store.sessions()) == ["B", "a", "b", "c", "z", "é"]


def test_names_go_by_their_bytes(store: Any) -> None:
    session_ids = ["\ue000", "\U0001f600", "\ud7ff", "a", "\uffff", "\U0010ffff"]
    begin(store, *session_ids)
    assert names(store.sessions()) == sorted(session_ids, key=str.encode)


def test_a_listed_session_is_what_info_says(store: Any) -> None:
    begin(store, "a")
    store.save_snapshot("a")
    store.clear("a")
    assert store.sessions().sessions == (store.info("a"),)


def test_nothing_is_listed_where_there_is_nothing(store: Any) -> None:
    page = store.sessions()
    assert (page.sessions, page.next) == ((), None)


def test_pages_meet_every_session_once(store: Any) -> None:
    session_ids = [f"s{number:02}" for number in range(23)]
    begin(store, *session_ids)
    for limit in (1, 5, 22, 23, 24):
        assert all_pages(store, limit=limit) == session_ids


def test_a_prefix_selects(store: Any) -> None:
    begin(store, "user:1", "user:2", "users", "use", "v")
    assert names(store.sessions("user:")) == ["user:1", "user:2"]
    assert names(store.sessions("user")) == ["user:1", "user:2", "users"]
    assert names(store.sessions("nobody")) == []


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("100%", ["100", "1000", "100x"]),
        ("a_b", ["axb", "a-b", "aab"]),
        ("a*", ["ab", "aa"]),
        ("[ab]", ["a", "b"]),
        ("a\\", ["a", "ab"]),
        ("a'b", ["a", "ab"]),
        ("A", ["a", "ab"]),
        ("é", ["e", "e\u0301", "è"]),
        ("\U0001f600", ["\U0001f601", "\U0001f5ff"]),
        ("\ud7ff", ["\ue000", "\ud7fe"]),
        ("\U0010ffff", ["\U0010fffe", "z"]),
        (" ", ["a", "\t"]),
    ],
)
def test_a_prefix_is_taken_literally(store: Any, prefix: str, others: list[str]) -> None:
    mine = [prefix, prefix + "1", prefix + "\U0010ffff", prefix + "z"]
    begin(store, *mine, *others)
    assert names(store.sessions(prefix)) == sorted(mine, key=str.encode)
    assert all_pages(store, prefix=prefix, limit=1) == sorted(mine, key=str.encode)


def test_a_session_there_throughout_is_listed_while_others_come_and_go(store: Any) -> None:
    stayers = [f"s{number:02}" for number in range(20)]
    begin(store, *stayers, *(f"t{number:02}" for number in range(10)))

    def meanwhile(number: int) -> None:
        begin(store, f"a{number}", f"s{number:02}-new", f"z{number}")
        store.erase(f"t{number:02}")

    found = all_pages(store, limit=3, meanwhile=meanwhile)
    assert set(stayers) <= set(found)
    assert len(found) == len(set(found))


# --- the latest changed first ----------------------------------------------------------------------------------------


by_change = pytest.mark.where(orders_by_change=True)


@pytest.fixture
def aged(store: Any, clock: Clock) -> tuple[Any, Clock]:
    """Sessions s0 to s9, changed one after the other, one second apart."""
    for number in range(10):
        clock.advance(1)
        begin(store, f"s{number}")
    clock.advance(1)
    return store, clock


@by_change
def test_recent_sessions_come_first(aged: tuple[Any, Clock]) -> None:
    store, _ = aged
    begin(store, "s3")
    assert names(store.sessions(order="recent"))[:3] == ["s3", "s9", "s8"]


@by_change
def test_every_change_makes_a_session_recent(aged: tuple[Any, Clock]) -> None:
    store, clock = aged
    clock.advance(1)
    store.save_snapshot("s1")
    clock.advance(1)
    store.clear("s5")
    assert names(store.sessions(order="recent", limit=2)) == ["s5", "s1"]


@by_change
@pytest.mark.parametrize("limit", [1, 3, 9, 10, 11])
def test_recent_pages_meet_every_session(aged: tuple[Any, Clock], limit: int) -> None:
    store, _ = aged
    assert all_pages(store, order="recent", limit=limit) == [f"s{number}" for number in reversed(range(10))]


@by_change
def test_recent_pages_meet_sessions_that_changed_at_one_moment(store: Any, clock: Clock) -> None:
    session_ids = [f"s{number}" for number in range(10)]
    begin(store, *session_ids)
    for limit in (1, 3):
        found = all_pages(store, order="recent", limit=limit)
        assert set(found) == set(session_ids)  # at least once: no clock can tell a change from none at one moment


@by_change
@pytest.mark.parametrize("step", [1, 0, -2], ids=["later", "at-the-same-moment", "on-a-clock-set-back"])
def test_a_session_that_changes_while_one_pages_is_not_missed(aged: tuple[Any, Clock], step: int) -> None:
    store, clock = aged

    def meanwhile(number: int) -> None:
        if number == 0:
            clock.advance(step)
            begin(store, "s0", "s4", "s9")

    found = all_pages(store, order="recent", limit=3, meanwhile=meanwhile)
    assert set(found) == {f"s{number}" for number in range(10)}


@by_change
def test_recent_pages_end_while_sessions_keep_changing(aged: tuple[Any, Clock]) -> None:
    store, clock = aged

    def meanwhile(number: int) -> None:
        clock.advance(1)
        begin(store, f"s{number % 10}")

    found = all_pages(store, order="recent", limit=2, meanwhile=meanwhile)
    assert set(found) == {f"s{number}" for number in range(10)}


@by_change
def test_recent_takes_a_prefix(aged: tuple[Any, Clock]) -> None:
    store, _ = aged
    begin(store, "t1")
    assert all_pages(store, prefix="s", order="recent", limit=4) == [f"s{number}" for number in reversed(range(10))]


@pytest.mark.where(orders_by_change=False)
def test_where_sessions_cannot_be_ordered_by_change_that_is_said_with_what_to_do(store: Any) -> None:
    with pytest.raises(Unsupported, match=r"sort by changed_at, or use SQLite or PostgreSQL"):
        store.sessions(order="recent")


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3"])
def test_a_limit_that_is_none_is_refused(one_store: Any, limit: object) -> None:
    with pytest.raises(InvalidInput, match=r"^limit: "):
        one_store.sessions(limit=limit)


@pytest.mark.parametrize("page", ["", "nonsense", "é", "bnVsbA==", "W10=", 7, b"x"])
def test_a_page_that_is_none_is_refused(one_store: Any, page: object) -> None:
    begin(one_store, "a")
    with pytest.raises(InvalidInput, match=r"^page: "):
        one_store.sessions(page=page)


def test_a_page_of_another_order_is_refused(one_store: Any) -> None:
    begin(one_store, "a", "b")
    page = one_store.sessions(limit=1).next
    with pytest.raises(InvalidInput, match=r"^page: "):
        one_store.sessions(page=page, order="recent")


@pytest.mark.parametrize("prefix", [7, None, b"a", "a\0", "\ud800"])
def test_a_prefix_that_is_none_is_refused(one_store: Any, prefix: object) -> None:
    with pytest.raises(InvalidInput, match=r"^prefix: "):
        one_store.sessions(prefix)


def test_an_unknown_order_is_refused(one_store: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^order: "):
        one_store.sessions(order="size")
