"""The least policy of IAM: every action that it names is needed, and every one that is needed is named."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backend import drive
from everturn.backends.dynamodb import permissions
from tests.integration.dynamodb.conftest import Requests
from tests.integration.surface import whole_surface
from tests.integration.writers import turn

DOCS = Path(__file__).parents[3] / "docs"


def operate(store: everturn.MemoryStore) -> None:
    """Call every method, also on what is too large for one transaction."""
    whole_surface(store)
    store.add_messages("large", [ChatMessage("user", "x" * 5_000_000)])
    store.erase("large")
    with store.lease("leased") as lease:
        store.add_messages("leased", turn("1"), lease=lease)
    store.get_context("leased", max_messages=2)
    store.begin_effect("leased", "pay")
    store.finish_effect("leased", "pay", {"ok": True})
    store.get_effects("leased")
    store.get_turn("leased", "k")
    for number in range(4):
        store.add_messages("leased", turn(str(number)), key=f"k{number}")
    store.fold("leased", lambda *_: "short", max_messages=2)
    assert store.health()
    with everturn.open("sqlite://") as other:
        assert everturn.copy(store, other).ok
        store.erase("leased")
        assert everturn.copy(other, store).ok


def test_a_store_sends_what_the_policy_names_and_nothing_else(url: str, requests: Requests) -> None:
    with everturn.open(url, timeout=30) as store:
        requests.forget()
        operate(store)
    assert requests.actions == {*permissions.TO_USE, *permissions.TO_VERIFY}
    assert set(requests.operations) <= permissions.OPERATIONS


def test_opening_creates_nothing_unless_it_is_told_to(bare_url: str, requests: Requests) -> None:
    with pytest.raises(MemoryStoreBackendError, match="there is no such table"):
        everturn.open(bare_url)
    assert requests.actions == {"GetItem"}


def test_creating_a_table_sends_what_is_named_for_it(url: str, requests: Requests) -> None:
    everturn.open(url).close()
    assert requests.actions == {*permissions.TO_CREATE, "GetItem", "PutItem"}


def test_a_read_only_store_needs_no_permission_to_write(url: str, requests: Requests) -> None:
    with everturn.open(url, timeout=30) as store:
        for number in range(3):
            store.save_context("a", f"{number}", "yes")
        snapshot = store.save_snapshot("a")
    requests.forget()
    with everturn.open(url, read_only=True) as store:
        assert len(store.get_history("a")) == 6
        store.get_history("a", at=snapshot)
        store.get_context("a", max_messages=2)
        store.get_effects("a")
        store.changes("a")
        store.list_snapshots("a")
        store.sessions()
        store.find("yes")
        store.verify("a")
    assert requests.actions == set(permissions.TO_READ)


def test_doctor_tries_every_permission(url: str, requests: Requests) -> None:
    with everturn.open(url) as store:
        drive(store._operations.backend.examine(time.monotonic() + 20))  # type: ignore[attr-defined]  # DynamoDB's
        tried = {*permissions.TO_USE, *permissions.TO_VERIFY, *permissions.TO_EXAMINE}
        assert requests.actions == {*tried, *permissions.TO_CREATE}
        assert not store.sessions().sessions  # and changes nothing


def test_the_docs_have_the_policy() -> None:
    page = (DOCS / "storage-dynamodb.md").read_text("utf-8").partition("## Permissions")[2]
    printed = json.loads(page.partition("```json\n")[2].partition("```")[0])
    assert printed == permissions.policy(permissions.EXAMPLE_TABLE)


def test_a_policy_names_one_table_and_no_action_twice() -> None:
    made = permissions.policy("arn:aws:dynamodb:eu-central-1:1:table/mine")
    actions = [action for statement in made["Statement"] for action in statement["Action"]]
    assert len(actions) == len(set(actions))
    assert {statement["Resource"] for statement in made["Statement"]} == {"arn:aws:dynamodb:eu-central-1:1:table/mine"}
