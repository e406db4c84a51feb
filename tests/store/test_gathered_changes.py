"""Changes that tasks make at the same moment: a backend may send them together, and each keeps its own conditions.

Names matter: a backend may put changes of one request in the order of their sessions. So each condition is tried on a
session before, and on one behind, the sessions of the other changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everturn import AsyncMemoryStore, KeyReused, LeaseLost, Receipt, Summary, VersionConflict
from tests.store.places import Place
from tests.store.speech import say_each, user, words

pytestmark = pytest.mark.where(blocking=False)
Call = Callable[[AsyncMemoryStore], Awaitable[Any]]

OTHERS: dict[str, Callable[[AsyncMemoryStore, str], Awaitable[Any]]] = {
    "turn": lambda store, name: store.add_messages(name, [user("beside")]),
    "keyed turn": lambda store, name: store.add_messages(name, [user("beside")], key="k"),
    "snapshot": lambda store, name: store.save_snapshot(name, "beside"),
    "replace": lambda store, name: store.replace(name, [user("beside")], after=1),
    "undo": lambda store, name: store.undo(name),
    "clear": lambda store, name: store.clear(name),
    "summary": lambda store, name: store.add_summary(name, Summary("beside", (1.0,), (1, 1))),
    "ttl": lambda store, name: store.set_ttl(name, 1000),
    "facts": lambda store, name: store.set_facts(name, {"user": "42"}),
    "effect": lambda store, name: store.begin_effect(name, "payment"),
}


def gathered(place: Place, store: Any, calls: list[Call]) -> list[Any]:
    """Make all of these calls at once. Returns their results, and the errors of those that were refused."""

    async def make() -> list[Any]:
        return await asyncio.gather(*(call(store._store) for call in calls), return_exceptions=True)

    return list(place.loop.run(make()))


def turn(name: str, **options: Any) -> Call:
    return lambda store: store.add_messages(name, [user("new")], **options)


class Conditions:
    """Turns, each of a session of its own, with a condition that holds, or with one that does not."""

    def __init__(self, store: Any, prefix: str, *, keys: bool) -> None:
        self._store = store
        self._prefix = prefix
        self.holding: dict[str, Call] = {}
        self.failing: dict[str, tuple[Call, type[Exception]]] = {}
        self._versions()
        self._lives()
        self._leases()
        if keys:
            self._keys()

    def _session(self, what: str) -> tuple[str, Receipt]:
        name = f"{self._prefix} {what}"
        return name, say_each(self._store, name, "1", "2")[-1]

    def _versions(self) -> None:
        name, _ = self._session("at the version")
        self.holding[name] = turn(name, expected_version=2)
        name, receipt = self._session("at the receipt")
        self.holding[name] = turn(name, expected_version=receipt)
        self.holding[f"{self._prefix} absent"] = turn(f"{self._prefix} absent", expected_version=0)
        for what, version in (("behind", 1), ("ahead", 3), ("thought absent", 0)):
            name, _ = self._session(what)
            self.failing[name] = turn(name, expected_version=version), VersionConflict

    def _lives(self) -> None:
        for what in ("receipt", "state"):
            name, receipt = self._session(f"another life than of the {what}")
            seen = receipt if what == "receipt" else self._store.state(name)
            self._store.erase(name)
            say_each(self._store, name, "1", "2")
            self.failing[name] = turn(name, expected_version=seen), VersionConflict

    def _leases(self) -> None:
        for what in ("lease", "token"):
            name, _ = self._session(f"by the {what}")
            lease = self._store.lease(name).lease
            self.holding[name] = turn(name, lease=lease if what == "lease" else lease.token)
            name, _ = self._session(f"by the {what} of before")
            lease = self._store.lease(name)
            token = lease.token
            lease.release()
            self.failing[name] = turn(name, lease=lease.lease if what == "lease" else token), LeaseLost
            self._store.lease(name)  # by another
        name, _ = self._session("by the lease, and behind")
        self.failing[name] = turn(name, lease=self._store.lease(name).token, expected_version=1), VersionConflict
        name, receipt = self._session("by another token, at the receipt")
        wrong = self._store.lease(name).token + 1
        self.failing[name] = turn(name, lease=wrong, expected_version=receipt), LeaseLost

    def _keys(self) -> None:
        name, _ = self._session("a new key")
        self.holding[name] = turn(name, key="a new one", expected_version=2)
        name, _ = self._session("a key of another turn")
        self._store.add_messages(name, [user("other")], key="taken")
        self.failing[name] = turn(name, key="taken"), KeyReused


@pytest.mark.parametrize("other", [*OTHERS, "nothing"])
def test_each_of_the_changes_made_at_once_keeps_its_own_conditions(place: Place, other: str) -> None:
    store = place.open(timeout=60)
    has_keys = other not in ("nothing", "turn")  # PostgreSQL has another way for turns without keys, all by themselves
    before, behind = Conditions(store, "a", keys=has_keys), Conditions(store, "z", keys=has_keys)
    beside = [f"m {number}" for number in range(3)] if other in OTHERS else []
    for name in beside:
        say_each(store, name, "1", "2")
        store.clear(name)
        store.undo(name)
        store.replace(name, [user("there is something to undo")], after=2)
    states = {name: store.state(name) for each in (before, behind) for name in each.failing}
    versions = [store.state(name).version for name in beside]
    calls = [call for each in (before, behind) for call in each.holding.values()]
    calls += [lambda store, name=name: OTHERS[other](store, name) for name in beside]  # type: ignore[misc]
    calls += [call for each in (before, behind) for call, _ in each.failing.values()]

    results = gathered(place, store, calls)

    of_holding, others = results[: 2 * len(before.holding)], results[2 * len(before.holding) :]
    for name, receipt in zip([*before.holding, *behind.holding], of_holding, strict=True):
        assert isinstance(receipt, Receipt), (name, receipt)
        assert words(store, name)[-1] == "new"
        assert not receipt.replayed
    for version, name, result in zip(versions, beside, others, strict=False):
        assert not isinstance(result, Exception), (name, result)
        assert store.state(name).version == version + 1
    refused = [*before.failing.items(), *behind.failing.items()]
    for (name, (_, kind)), result in zip(refused, others[len(beside) :], strict=True):
        assert type(result) is kind, (name, result)
        assert store.state(name) == states[name], name
    assert store.verify().ok


def test_of_turns_that_expect_the_same_version_one_is_written_whatever_is_made_beside_them(place: Place) -> None:
    store = place.open(timeout=60)
    seen = say_each(store, "a", "1")[-1]
    say_each(store, "b", "1")
    expecting = [turn("a", expected_version=seen if number % 2 else seen.version) for number in range(8)]
    beside: list[Call] = [lambda store: store.save_snapshot("b"), turn("b"), turn("b", key="k"), turn("c")]
    results = gathered(place, store, [call for pair in zip(expecting, 2 * beside, strict=True) for call in pair])
    assert [type(result) for result in results[::2]].count(Receipt) == 1
    assert [type(result) for result in results[::2]].count(VersionConflict) == 7
    assert words(store, "a") == ["1", "new"]
    assert store.info("b").version == 1 + 2 + 2 + 1  # the second use of the key is a replay
    assert words(store, "c") == ["new", "new"]
    assert store.verify().ok


def test_the_holder_of_a_lease_and_those_who_lost_it_are_told_apart_in_one_session(place: Place) -> None:
    store = place.open(timeout=60)
    say_each(store, "a", "1")
    gone = store.lease("a")
    gone.release()
    held = store.lease("a")
    calls: list[Call] = [
        turn("a", lease=gone.lease),
        turn("a", lease=held.lease),
        lambda store: store.save_snapshot("a", lease=gone.token),
        turn("a", lease=gone.token),
        lambda store: store.set_facts("a", {"user": "42"}, lease=held.token),
        turn("a"),
        turn("a", lease=held.token, key="k"),
        lambda store: store.begin_effect("a", "payment", lease=gone.token),
    ]
    results = gathered(place, store, calls)
    assert [isinstance(result, LeaseLost) for result in results] == [True, False, True, True, False, False, False, True]
    assert not any(isinstance(result, Exception) for result in results if not isinstance(result, LeaseLost))
    assert store.info("a").version == 1 + 4
    assert (store.list_snapshots("a"), store.get_effects("a")) == ([], [])


def test_sessions_that_begin_at_once_have_the_ttl_of_their_store(place: Place) -> None:
    store = place.open(timeout=60, ttl=1000)
    say_each(store, "m", "1")
    store.set_ttl("m", None)
    calls: list[Call] = [
        turn("a"),
        turn("b", key="k"),
        turn("c", expected_version=0),
        lambda store: store.save_snapshot("d"),
        lambda store: store.set_ttl("m", 2000),
        lambda store: store.begin_effect("n", "payment"),
        turn("z", expected_version=store.state("z")),
    ]
    for result in gathered(place, store, calls):
        assert not isinstance(result, Exception), result
    assert {name: store.info(name).ttl for name in "abcdmnz"} == dict.fromkeys("abcdnz", 1000) | {"m": 2000}
