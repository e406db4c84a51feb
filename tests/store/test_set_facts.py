"""set_facts and sessions(where=): sessions that people find by their user or their title, on every backend."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from everturn import InvalidInput, KeyReused, LeaseLost, VersionConflict
from everturn.backend import MOST_FACTS
from tests.store.places import Clock, Place
from tests.store.speech import say

HOSTILE = 'x\n"user":"43"\\ {}%_\u2028\U0001f680é\x01\x7f'


def names(store: Any, where: dict[str, str], **options: Any) -> list[str]:
    """The ids of all sessions with these facts, page by page."""
    found, page = [], None
    while True:
        listed = store.sessions(where=where, page=page, **options)
        found += [session.session_id for session in listed.sessions]
        if (page := listed.next) is None:
            return found


def test_facts_are_set_and_told(store: Any) -> None:
    store.set_facts("a", {"user": "42", "title": "Refund"})
    assert store.info("a").facts == {"title": "Refund", "user": "42"}
    assert store.state("a").facts == {"title": "Refund", "user": "42"}
    (listed,) = store.sessions().sessions
    assert listed.facts == {"title": "Refund", "user": "42"}


def test_others_stay_as_they_are_and_none_removes_one(store: Any) -> None:
    store.set_facts("a", {"user": "42", "title": "Refund"})
    store.set_facts("a", {"title": "Refund of 1234", "plan": "free"})
    assert store.info("a").facts == {"plan": "free", "title": "Refund of 1234", "user": "42"}
    store.set_facts("a", {"plan": None, "never there": None})
    assert store.info("a").facts == {"title": "Refund of 1234", "user": "42"}
    store.set_facts("a", {"title": None, "user": None})
    assert store.info("a").facts == {}
    assert names(store, {"user": "42"}) == []
    assert store.verify().ok


def test_it_is_a_change_and_one_that_alters_nothing_is_none(store: Any) -> None:
    say(store, "a", "1")
    assert store.set_facts("a", {"user": "42", "title": "x"}).version == 2
    assert store.set_facts("a", {"user": "42"}).version == 2
    assert store.set_facts("a", {"never there": None}).version == 2
    assert store.set_facts("a", {}).version == 2
    assert [(change.kind, change.label) for change in store.changes("a")] == [
        ("facts", "title, user"),
        ("append", None),
    ]


def test_a_session_begins_with_its_facts(store: Any) -> None:
    assert store.set_facts("a", {"user": None}).version == 0
    assert store.set_facts("a", {"user": "42"}, expected_version=0).version == 1
    assert store.info("a").messages == 0
    say(store, "a", "1")
    assert store.info("a").facts == {"user": "42"}


def test_a_retry_with_the_key_sets_them_once(store: Any) -> None:
    first = store.set_facts("a", {"user": "42"}, key="k")
    store.set_facts("a", {"user": "43"})
    again = store.set_facts("a", {"user": "42"}, key="k")
    assert (again.version, again.replayed) == (first.version, True)
    assert store.info("a").facts == {"user": "43"}
    with pytest.raises(KeyReused):
        store.set_facts("a", {"user": None}, key="k")


def test_an_unexpected_version_changes_nothing(store: Any) -> None:
    store.set_facts("a", {"user": "42"})
    with pytest.raises(VersionConflict):
        store.set_facts("a", {"user": "43"}, expected_version=7)
    assert store.info("a").facts == {"user": "42"}


def test_a_lease_that_is_lost_changes_nothing(store: Any) -> None:
    store.set_facts("a", {"user": "42"})
    lease = store.lease("a")
    store.set_facts("a", {"title": "x"}, lease=lease)
    lease.release()
    with pytest.raises(LeaseLost):
        store.set_facts("a", {"title": "y"}, lease=lease)
    assert store.info("a").facts == {"title": "x", "user": "42"}


def test_they_belong_to_the_session_and_not_to_its_history(store: Any) -> None:
    say(store, "a", "1")
    before = store.save_snapshot("a")
    say(store, "a", "2")
    store.set_facts("a", {"user": "42"})
    store.rollback_to_snapshot("a", before)
    assert store.info("a").facts == {"user": "42"}
    store.undo("a")
    store.trim("a", max_messages=1)
    store.clear("a")
    store.compact("a")
    assert store.info("a").facts == {"user": "42"}
    assert names(store, {"user": "42"}) == ["a"]


def test_sessions_are_found_by_all_facts_that_are_named(store: Any) -> None:
    for name, user, plan in (("a", "42", "free"), ("b", "43", "free"), ("c", "42", "paid"), ("d", "42", "free")):
        store.set_facts(name, {"user": user, "plan": plan})
    say(store, "e", "1")
    assert names(store, {"user": "42"}) == ["a", "c", "d"]
    assert names(store, {"user": "42", "plan": "free"}) == ["a", "d"]
    assert names(store, {"user": "42"}, prefix="c") == ["c"]
    assert names(store, {"user": "42"}, limit=1) == ["a", "c", "d"]
    assert names(store, {"user": "4"}) == names(store, {"name": "42"}) == []
    assert names(store, {}) == ["a", "b", "c", "d", "e"]
    store.set_facts("c", {"user": "43"})
    assert names(store, {"user": "42"}) == ["a", "d"]
    assert names(store, {"user": "43"}) == ["b", "c"]


@pytest.mark.where(orders_by_change=True)
def test_the_latest_changed_come_first_if_asked(store: Any, clock: Clock) -> None:
    for name in ("a", "b", "c", "d"):
        store.set_facts(name, {"user": "43" if name == "c" else "42"})
        clock.advance(1)
    say(store, "a", "1")
    assert [session.session_id for session in store.sessions(where={"user": "42"}, order="recent").sessions] == [
        "a",
        "d",
        "b",
    ]
    first = store.sessions(where={"user": "42"}, order="recent", limit=2)
    rest = store.sessions(where={"user": "42"}, order="recent", limit=2, page=first.next)
    assert [session.session_id for session in (*first.sessions, *rest.sessions)] == ["a", "d", "b"]


def test_any_text_comes_back_as_it_was_and_finds_its_session_alone(store: Any) -> None:
    store.set_facts("a", {"user": HOSTILE, HOSTILE: "name", "empty": ""})
    store.set_facts("b", {"user": "43", "title": "empty"})
    assert store.info("a").facts == {"user": HOSTILE, HOSTILE: "name", "empty": ""}
    assert names(store, {"user": HOSTILE}) == names(store, {HOSTILE: "name"}) == names(store, {"empty": ""}) == ["a"]
    assert names(store, {"user": "43"}) == ["b"]
    store.set_facts("a", {HOSTILE: None})
    assert store.info("a").facts == {"user": HOSTILE, "empty": ""}


def test_facts_that_cannot_be_kept_are_refused_by_name(store: Any) -> None:
    wrong: list[Any] = [
        {"user": 42},
        {"user": True},
        {"user": ["42"]},
        {42: "user"},
        {"": "x"},
        {"user": "\0"},
        {"user": "\ud800"},
        {"user": "é" * 257},
        {"n" * 65: "x"},
        [("user", "42")],
        "user",
    ]
    for facts in wrong:
        with pytest.raises(InvalidInput, match="facts"):
            store.set_facts("a", facts)
    for where in (*wrong, {"user": None}):
        with pytest.raises(InvalidInput, match="where"):
            store.sessions(where=where)
    assert names(store, {}) == []
    store.set_facts("a", {"n" * 64: "é" * 256})
    assert names(store, {"n" * 64: "é" * 256}) == ["a"]


def test_a_session_has_so_many_facts_and_no_more(store: Any) -> None:
    store.set_facts("a", {f"n{i}": "x" for i in range(MOST_FACTS)})
    before = store.state("a")
    for more in ({"one more": "x"}, {f"m{i}": "x" for i in range(MOST_FACTS + 1)}):
        with pytest.raises(InvalidInput, match="16"):
            store.set_facts("a", more)
    assert store.state("a") == before
    store.set_facts("a", {"n0": None, "one more": "x"})
    assert len(store.info("a").facts) == MOST_FACTS


def test_a_fork_has_the_facts_of_its_source(store: Any) -> None:
    """Whoever erases the sessions of a user must find the copies, too."""
    say(store, "a", "1")
    store.set_facts("a", {"user": "42"})
    store.fork("a", "b", at=1)
    store.set_facts("a", {"title": "x"})
    assert store.info("b").facts == {"user": "42"}
    assert names(store, {"user": "42"}) == ["a", "b"]
    assert store.verify().ok


def test_facts_end_with_the_life(store: Any, clock: Clock) -> None:
    store.set_facts("a", {"user": "42"})
    store.set_ttl("a", 10)
    store.set_facts("b", {"user": "42"})
    store.erase("b")
    clock.advance(11)
    assert names(store, {"user": "42"}) == []
    for name in ("a", "b"):
        say(store, name, "1")
        assert store.info(name).facts == {}
    assert names(store, {"user": "42"}) == []


@pytest.mark.where(shared=True)
def test_workers_that_set_different_facts_lose_none(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    together = threading.Barrier(len(stores))

    def work(number: int) -> None:
        together.wait()
        for step in range(5):
            stores[number].set_facts("a", {f"of {number}": str(step)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].info("a").facts == {f"of {number}": "4" for number in range(4)}
    assert stores[0].info("a").version == 20


@pytest.mark.where(erases_by_age=True)
def test_the_sessions_of_a_user_are_erased_by_a_fact(store: Any) -> None:
    for name, user in (("a", "42"), ("b", "43"), ("c", "42")):
        say(store, name, "1")
        store.set_facts(name, {"user": user})
    receipt = store.erase_all(where={"user": "42"})
    assert (receipt.sessions, receipt.entries) == (2, 2)
    assert names(store, {}) == ["b"]
    with pytest.raises(InvalidInput, match="everything"):
        store.erase_all(where={})


@pytest.mark.where(erases_by_age=True, blocking=True)  # the callback runs in the loop of the store
def test_a_session_that_is_changed_meanwhile_is_erased_only_while_it_has_the_fact(store: Any) -> None:
    for name in ("a", "b", "c"):
        store.set_facts(name, {"user": "42"})

    def meanwhile(_: object) -> None:
        if "b" in names(store, {"user": "42"}):
            say(store, "c", "still the user's")
            store.set_facts("b", {"user": "43"})

    assert store.erase_all(where={"user": "42"}, progress=meanwhile).sessions == 2
    assert names(store, {}) == ["b"]


def test_sessions_of_another_namespace_are_not_found(lasting: Place) -> None:
    one, other = lasting.open(namespace="one"), lasting.open(namespace="other")
    one.set_facts("a", {"user": "42"})
    assert names(other, {"user": "42"}) == []
    assert names(one, {"user": "42"}) == ["a"]
