"""The interface is ADK's, all of it: a release that adds to it is noticed here."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.state import State

from everturn.adapters.google_adk import EverturnSessionService, shared_state
from tests.adapters.checking import refusal

# What ADK's base class has and we need not override. `flush`: nothing is held back.
INHERITED = {"flush"}
# What it does for those who derive from it, and we call.
USED = {"_apply_temp_state", "_trim_temp_delta_state", "_commit_event_to_session"}


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_every_method_of_the_interface_is_ours_or_known_to_be_derived() -> None:
    assert set(public(BaseSessionService)) - INHERITED == set(public(EverturnSessionService)) - {"everturn_session"}
    assert set(vars(BaseSessionService)) >= USED


@pytest.mark.parametrize("name", sorted(set(public(BaseSessionService)) - INHERITED))
def test_a_method_takes_what_the_interface_says(name: str) -> None:
    theirs = inspect.signature(getattr(BaseSessionService, name)).parameters.values()
    ours = inspect.signature(getattr(EverturnSessionService, name)).parameters.values()
    assert [(each.name, each.kind, each.default) for each in ours] == [(e.name, e.kind, e.default) for e in theirs]
    assert inspect.iscoroutinefunction(getattr(EverturnSessionService, name))


def test_the_prefixes_of_state_are_adks() -> None:
    assert (shared_state.APP, shared_state.USER, shared_state.TEMP) == (
        State.APP_PREFIX,
        State.USER_PREFIX,
        State.TEMP_PREFIX,
    )


def test_a_session_has_the_place_where_services_put_their_marker_and_copies_keep_it() -> None:
    session = Session(app_name="a", user_id="u", id="s")
    session._storage_update_marker = "mine"
    for copied in (session.model_copy(), session.model_copy(deep=True)):
        assert copied._storage_update_marker == "mine"
    assert "mine" not in session.model_dump_json()


def test_models_that_are_made_without_being_checked_have_no_more_to_them_than_fields() -> None:
    for example in (Event(), EventActions()):
        assert example.__pydantic_private__ is None
        assert example.__pydantic_extra__ is None
    validators = Event.__pydantic_decorators__
    assert set(validators.model_validators) == {"_accept_convenience_kwargs"}
    assert not validators.field_validators


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs google-adk, which is not installed"),
        ({"google-adk": "1.39.1"}, "needs google-adk 2.10 or newer, and 1.39.1 is installed"),
    ],
)
def test_without_adk_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    told = refusal("everturn.adapters.google_adk", found)
    assert why in told
    assert 'pip install "everturn[google-adk]"' in told


def test_the_extra_names_what_the_adapter_needs() -> None:
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert 'google-adk = ["google-adk>=2.10"]' in pyproject
