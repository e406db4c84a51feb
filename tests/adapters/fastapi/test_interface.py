"""What we build on is FastAPI's, and what we hand out fits it: a release that changes it is noticed here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse
from fastapi.websockets import WebSocketState

import everturn
from everturn import MemoryStoreError
from everturn.adapters.fastapi import CODES, STORE_ERRORS, get_store, store_lifespan
from tests.adapters.checking import needs, refusal

# Errors of the store that are no answer to a request, but a fault of the server: 500.
FAULTS = {everturn.CorruptEntry, everturn.SchemaTooNew}


def takes(call: Any) -> set[str]:
    return set(inspect.signature(call).parameters)


def test_an_application_takes_our_lifespan_and_our_handlers() -> None:
    assert takes(FastAPI) >= {"lifespan", "exception_handlers"}
    app = FastAPI(lifespan=store_lifespan("sqlite://"), exception_handlers=STORE_ERRORS)
    assert MemoryStoreError in app.exception_handlers


def test_a_connection_has_what_we_look_at() -> None:
    assert isinstance(inspect.getattr_static(HTTPConnection, "app"), property)
    assert isinstance(inspect.getattr_static(HTTPConnection, "state"), property)
    assert issubclass(WebSocket, HTTPConnection)
    assert list(inspect.signature(JSONResponse).parameters)[:2] == ["content", "status_code"]


def test_a_web_socket_is_closed_and_answered_as_we_do_it() -> None:
    assert list(inspect.signature(WebSocket.close).parameters)[1:] == ["code", "reason"]
    assert list(inspect.signature(WebSocket.send_denial_response).parameters)[1:] == ["response"]
    # A state that a release adds has to be looked at: may a socket be closed in it?
    assert {state.name for state in WebSocketState} == {"CONNECTING", "CONNECTED", "DISCONNECTED", "RESPONSE"}


def test_every_error_of_the_store_has_its_code() -> None:
    assert set(MemoryStoreError.__subclasses__()) == set(CODES) | FAULTS
    assert set(STORE_ERRORS) == {MemoryStoreError}


def test_what_is_handed_out_takes_what_the_page_says() -> None:
    assert takes(get_store) == {
        "connection"
    }  # FastAPI hands over what is annotated so, and asks the client for the rest
    assert inspect.get_annotations(get_store, eval_str=True)["connection"] is HTTPConnection
    assert list(inspect.signature(store_lifespan).parameters) == ["url", "then", "options"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs fastapi, which is not installed"),
        ({"fastapi": "0.99.1"}, "needs fastapi 0.100 or newer, and 0.99.1 is installed"),
    ],
    ids=["missing", "too old"],
)
def test_without_fastapi_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    said = refusal("everturn.adapters.fastapi", found)
    assert why in said
    assert 'pip install "everturn[fastapi]"' in said


def test_the_extra_names_what_the_adapter_needs() -> None:
    assert needs("fastapi") == ["fastapi>=0.100"]
