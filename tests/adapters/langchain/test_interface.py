"""The interface is LangChain's, all of it: a release that adds to it is noticed here."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.chat_history import BaseChatMessageHistory

from everturn.adapters.langchain import EverturnChatMessageHistory
from tests.adapters.checking import ROOT, refusal

OURS = {"add_messages", "aadd_messages", "aget_messages", "clear", "aclear"}
INHERITED = {"add_message", "add_user_message", "add_ai_message"}  # they call add_messages


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_every_method_of_the_interface_is_ours_or_known_to_be_derived() -> None:
    assert set(public(BaseChatMessageHistory)) == OURS | INHERITED
    assert set(public(EverturnChatMessageHistory)) == OURS
    assert isinstance(vars(EverturnChatMessageHistory)["messages"], property)
    assert set(BaseChatMessageHistory.__annotations__) == {"messages"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_method_takes_what_the_interface_says(name: str) -> None:
    theirs, ours = (getattr(kind, name) for kind in (BaseChatMessageHistory, EverturnChatMessageHistory))
    assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs langchain-core, which is not installed"),
        ({"langchain-core": "0.3.79"}, "needs langchain-core 1.0 or newer, and 0.3.79 is installed"),
    ],
    ids=["missing", "too old"],
)
def test_without_langchain_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    said = refusal("everturn.adapters.langchain", found)
    assert why in said
    assert 'pip install "everturn[langchain]"' in said


def test_the_extra_names_what_the_adapter_needs() -> None:
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["langchain"] == ["langchain-core>=1.0"]
