"""erase_all: all sessions of a user, or all that have not changed for long, on every backend."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from everturn import ChatMessage, ErasureReceipt, InvalidInput, Unsupported
from tests.store.conftest import Place
from tests.store.places import Clock

TURN = [ChatMessage("user", "hello")]


def names(store: Any) -> set[str]:
    return {session.session_id for session in store.sessions().sessions}


def test_all_sessions_of_a_prefix_go_and_no_other(store: Any) -> None:
    for name in ("user-42/a", "user-42/b", "user-42", "user-421/a", "user-43/a"):
        store.add_messages(name, TURN)
        store.save_snapshot(name)
    steps: list[ErasureReceipt] = []
    receipt = store.erase_all(prefix="user-42/", progress=steps.append)
    assert names(store) == {"user-42", "user-421/a", "user-43/a"}
    assert (receipt.session_id, receipt.sessions, receipt.entries, receipt.snapshots) == ("user-42/", 2, 2, 2)
    assert receipt.complete
    assert [step.sessions for step in steps] == [1, 2]
    again = store.erase_all(prefix="user-42/")
    assert (again.sessions, again.entries, again.complete) == (0, 0, True)


def test_sessions_that_adapters_keep_beside_a_user_go_with_it(store: Any) -> None:
    """`app/user#state` is Google ADK's shared state, `user-42/thread#namespace` a subgraph of LangGraph."""
    for name in ("app/user/s1", "app/user#state", "app/user2#state", "app#state", "user-42/t", "user-42/t#inner"):
        store.add_messages(name, TURN)
    store.erase_all(prefix="app/user/")
    store.erase_all(prefix="user-42/")
    assert names(store) == {"app/user2#state", "app#state"}


def test_nothing_named_would_be_everything_and_is_refused(store: Any) -> None:
    store.add_messages("a", TURN)
    with pytest.raises(InvalidInput, match="prefix"):
        store.erase_all()
    with pytest.raises(InvalidInput, match="changed_before"):
        store.erase_all(changed_before="yesterday")
    assert names(store) == {"a"}


@pytest.mark.where(erases_by_age=True)
def test_sessions_go_by_the_time_of_their_latest_change(store: Any, clock: Clock) -> None:
    store.add_messages("old", TURN)
    store.add_messages("used", TURN)
    clock.advance(100)
    store.add_messages("new", TURN)
    store.add_messages("used", TURN)
    receipt = store.erase_all(changed_before=clock() - 50)
    assert (receipt.sessions, names(store)) == (1, {"new", "used"})
    store.erase_all(changed_before=datetime.fromtimestamp(clock() + 1, UTC), prefix="n")
    assert names(store) == {"used"}


@pytest.mark.where(erases_by_age=True, blocking=True)  # the callback runs in the loop of the store
def test_a_session_that_changes_after_it_was_listed_stays(store: Any) -> None:
    for name in ("a", "b", "c"):
        store.add_messages(name, TURN)
    woken: list[str] = []

    def somebody_comes_back(_: ErasureReceipt) -> None:
        if not woken:
            woken.append("b")
            store.add_messages("b", TURN)

    receipt = store.erase_all(changed_before=time.time() + 3600, progress=somebody_comes_back)
    assert receipt.sessions == 2
    assert len(store.get_history("b")) == 2, "it was listed with the others, and changed before its turn came"


@pytest.mark.where(erases_by_age=False)
def test_a_backend_without_the_condition_refuses_to_erase_by_age(place: Place) -> None:
    store = place.open()
    store.add_messages("a", TURN)
    with pytest.raises(Unsupported):
        store.erase_all(changed_before=0.0)
    assert store.erase_all(prefix="a").sessions == 1
