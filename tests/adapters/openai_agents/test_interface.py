"""The interface is the SDK's, all of it: a release that adds to it is noticed here."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
from agents.memory import Session, SessionABC, SessionSettings
from agents.memory.session import OpenAIResponsesCompactionAwareSession

import everturn
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.checking import ROOT, refusal

METHODS = {"get_items", "add_items", "pop_item", "clear_session"}
OURS = {"save_snapshot", "list_snapshots", "rollback_to_snapshot", "undo"}  # beyond the SDK's


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}


def test_every_method_of_the_interface_is_ours() -> None:
    assert set(public(SessionABC)) == set(public(Session)) == METHODS
    assert set(public(EverturnSession)) == METHODS | OURS
    assert set(SessionABC.__annotations__) == set(Session.__annotations__) == {"session_id", "session_settings"}
    assert set(public(OpenAIResponsesCompactionAwareSession)) == {"run_compaction"}  # which only OpenAI's server can do


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_takes_what_the_interface_says(name: str) -> None:
    theirs, ours = (
        inspect.signature(getattr(kind, name)).parameters.values() for kind in (SessionABC, EverturnSession)
    )
    assert [(each.name, each.kind, each.default) for each in ours] == [(e.name, e.kind, e.default) for e in theirs]
    assert inspect.iscoroutinefunction(getattr(EverturnSession, name))


def test_a_session_is_one_and_has_settings() -> None:
    with everturn.open("sqlite://") as store:
        session = EverturnSession("s", store)
        assert isinstance(session, Session)
        assert session.session_settings == SessionSettings()
    assert {"limit"} == set(SessionSettings.__dataclass_fields__)  # a new setting has to be heeded


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs openai-agents, which is not installed"),
        ({"openai-agents": "0.2.0"}, "needs openai-agents 0.10 or newer, and 0.2.0 is installed"),
    ],
    ids=["missing", "too old"],
)
def test_without_the_sdk_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    said = refusal("everturn.adapters.openai_agents", found)
    assert why in said
    assert 'pip install "everturn[openai-agents]"' in said


def test_the_extra_names_what_the_adapter_needs() -> None:
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["openai-agents"] == ["openai-agents>=0.10"]
