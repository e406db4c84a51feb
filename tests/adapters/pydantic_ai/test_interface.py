"""The interface is Pydantic AI's, all of it: a release that adds to it is noticed here."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord, ConversationStore

from everturn.adapters.pydantic_ai import EverturnConversationStore
from tests.adapters.checking import refusal

# What a backend implements, and what it may.
PRIMITIVES = {"read_record", "read_records", "write_record", "delete_record", "read_entry"}
OVERRIDDEN = PRIMITIVES | {"read_history"}
# What Pydantic AI makes of these.
DERIVED = {"load", "load_entries", "save", "branch", "fork", "list_conversations", "delete"}


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_every_method_of_the_interface_is_ours_or_known_to_be_derived() -> None:
    assert ConversationStore.__abstractmethods__ == PRIMITIVES
    assert set(public(ConversationStore)) == OVERRIDDEN | DERIVED
    assert set(public(EverturnConversationStore)) == OVERRIDDEN


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_a_method_takes_what_the_interface_says(name: str) -> None:
    theirs = inspect.signature(getattr(ConversationStore, name)).parameters.values()
    ours = inspect.signature(getattr(EverturnConversationStore, name)).parameters.values()
    assert [(each.name, each.kind, each.default) for each in ours] == [(e.name, e.kind, e.default) for e in theirs]


def test_what_is_stored_beside_the_messages_is_what_we_know_of() -> None:
    """A field that a release adds is stored with the rest; an entry of a new kind is not, and has to be looked at."""
    assert {field.name for field in dataclasses.fields(ConversationEntry)} == {"id", "parent_id", "message", "kind"}
    assert {"conversation_id", "head_id", "revision", "branches"} <= {
        f.name for f in dataclasses.fields(ConversationRecord)
    }
    assert ConversationRecord(conversation_id="a", head_id=None).format_version == 1


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs pydantic-ai-slim, which is not installed"),
        ({"pydantic-ai-slim": "2.63.0"}, "needs pydantic-ai-slim 2.66 or newer, and 2.63.0 is installed"),
    ],
)
def test_without_pydantic_ai_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    told = refusal("everturn.adapters.pydantic_ai", found)
    assert why in told
    assert 'pip install "everturn[pydantic-ai]"' in told


def test_the_extra_names_what_the_adapter_needs() -> None:
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert 'pydantic-ai = ["pydantic-ai-slim>=2.66"]' in pyproject
