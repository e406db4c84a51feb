"""Commands that erase and export by prefix, and by age."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage
from tests.cli.conftest import Run


@pytest.fixture
def many(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/many.db"
    with everturn.open(url) as store:
        for name in ("user-42/a", "user-42/b", "user-42#state", "user-43/a"):
            store.add_messages(name, [ChatMessage("user", f"hello from {name}")])
    return url


def left(url: str) -> list[str]:
    with everturn.open(url) as store:
        return [session.session_id for session in store.sessions().sessions]


def test_erase_by_prefix_has_one_receipt_for_all(run: Run, many: str) -> None:
    wrong = run("erase", many, "--prefix", "user-42/", "--confirm", "user-4")
    assert (wrong.code, "nothing was erased" in wrong.err) == (2, True)
    assert len(left(many)) == 4
    ran = run("erase", many, "--prefix", "user-42/", "--confirm", "user-42/", "--json")
    receipt = json.loads(ran.out)
    assert (ran.code, receipt["sessions"], receipt["entries"], receipt["complete"]) == (0, 3, 3, True)
    assert left(many) == ["user-43/a"]


@pytest.mark.parametrize("words", [(), ("a", "--prefix", "b"), ("--prefix", "")])
def test_erase_wants_a_session_or_a_prefix(run: Run, many: str, words: tuple[str, ...]) -> None:
    ran = run("erase", many, *words)
    assert (ran.code, "give a session, or --prefix" in ran.err) == (2, True)
    assert len(left(many)) == 4


def test_export_by_prefix_writes_a_user_with_what_adapters_keep_beside(run: Run, many: str, tmp_path: Path) -> None:
    file = tmp_path / "user.jsonl"
    assert run("export", many, "--prefix", "user-42/", "-o", file).code == 0
    other = f"sqlite:///{tmp_path}/other.db"
    assert run("import", other, file).code == 0
    assert left(other) == ["user-42#state", "user-42/a", "user-42/b"]


def test_retain_erases_what_is_old_and_a_dry_run_only_lists_it(run: Run, many: str) -> None:
    assert "0 sessions would be erased" in run("retain", many, "--older-than", "1h", "--dry-run").out
    dry = run("retain", many, "--older-than", "0s", "--prefix", "user-42/", "--dry-run")
    assert "3 sessions would be erased" in dry.out
    assert len(left(many)) == 4
    assert run("retain", many, "--older-than", "1h").code == 0
    assert len(left(many)) == 4
    done = run("retain", many, "--older-than", "0s", "--prefix", "user-42/")
    assert (done.code, "erased 3 sessions unchanged for 0s" in done.out) == (0, True)
    assert left(many) == ["user-43/a"]
    assert "is seconds, or" in run("retain", many, "--older-than", "soon").err


def test_doctor_as_json_has_the_health_of_the_store(run: Run, many: str) -> None:
    health = json.loads(run("doctor", many, "--json").out)["health"]
    assert (health["reachable"], health["writable"], health["problems"]) == (True, True, [])
    assert health["disk_free"] > 0


def test_sessions_are_listed_erased_and_retained_by_a_fact(run: Run, many: str) -> None:
    with everturn.open(many) as store:
        store.set_facts("user-42/a", {"user": "42", "title": "Refund"})
        store.set_facts("user-42/b", {"user": "42"})
    listed = run("sessions", many, "--where", "user=42", "--where", "title=Refund")
    assert ("user-42/a" in listed.out, "title: Refund" in listed.out, "user-42/b" in listed.out) == (True, True, False)
    assert "no sessions with user=44" in run("sessions", many, "--where", "user=44").out
    assert "user: 42" in run("show", many, "user-42/a").out
    dry = run("retain", many, "--older-than", "0s", "--where", "user=42", "--dry-run")
    assert "2 sessions would be erased" in dry.out
    ran = run("erase", many, "--where", "user=42", "--confirm", "user=42", "--json")
    assert (ran.code, json.loads(ran.out)["sessions"]) == (0, 2)
    assert left(many) == ["user-42#state", "user-43/a"]


@pytest.mark.parametrize("words", [("--where", "user"), ("--where", "=42"), ("--where", "a=1", "--where", "a=2")])
def test_where_is_a_name_and_a_text(run: Run, many: str, words: tuple[str, ...]) -> None:
    for command in (("sessions", many), ("erase", many, "--confirm", "x")):
        ran = run(*command, *words)
        assert (ran.code, "user=42" in ran.err) == (2, True)
    assert len(left(many)) == 4
