"""Copies and exports bring facts along, between any two backends, and sessions are found by them in the target."""

from __future__ import annotations

import io
from typing import Any

import everturn
from everturn.transfer.jsonl import read_sessions, write_sessions
from tests.integration.copying.talks import HOSTILE, say
from tests.store.places import Place

VALUE = HOSTILE.replace("\0", "")[:100]


def found(store: Any, **where: str) -> list[str]:
    return [session.session_id for session in store.sessions(where=where).sessions]


def test_facts_come_along_and_sessions_are_found_by_them(source: Place, target: Place) -> None:
    one, other = source.open(), target.open()
    say(one, "a", "1")
    one.set_facts("a", {"user": VALUE, "title": "x"})
    say(one, "b", "1")
    assert everturn.copy(one, other).ok
    assert other.info("a").facts == {"title": "x", "user": VALUE}
    assert found(other, user=VALUE) == ["a"]
    one.set_facts("a", {"title": None, "plan": "free"})
    one.set_facts("b", {"user": "43"})
    assert everturn.copy(one, other).extended == 2
    assert other.info("a").facts == {"plan": "free", "user": VALUE}
    assert (found(other, title="x"), found(other, plan="free"), found(other, user="43")) == ([], ["a"], ["b"])
    one.set_facts("a", {"plan": None, "user": None})
    assert everturn.copy(one, other).ok
    assert (other.info("a").facts, found(other, plan="free")) == ({}, [])
    assert other.verify().ok


def test_an_export_has_them(source: Place, beside: Any) -> None:
    store = source.open()
    store.set_facts("a", {"user": VALUE})
    lines = io.BytesIO()
    write_sessions(store, None, lines.write)
    lines.seek(0)
    assert read_sessions(lines, beside).imported == 1
    assert found(beside, user=VALUE) == ["a"]
