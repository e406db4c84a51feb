"""The command `effects`, and effects in the other commands."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import everturn
from tests.cli.conftest import Run
from tests.cli.test_change import in_a_terminal
from tests.conversation import CUSTOMER


@pytest.fixture
def paid(url: str) -> str:
    """The store with a past, and one effect that finished and one in doubt."""
    with everturn.open(url) as store:
        store.once(CUSTOMER, "refund 1234", lambda: {"refund": "r-1"}, request={"amount": 20})
        store.begin_effect(CUSTOMER, "mail\x1b[2J", {"to": "ann@example.com"})
    return url


def test_effects_are_listed_with_their_status(run: Run, paid: str) -> None:
    first, second = run("effects", paid, CUSTOMER).lines
    worker = rf"{re.escape(os.uname().nodename)}-pid-{os.getpid()}-[0-9a-f]{{8}}"
    assert re.match(rf'refund 1234  finished with {{"refund":"r-1"}}; begun by {worker} at', first)
    assert re.search(f"in doubt or in progress: begun by {worker} at", second)
    assert "\x1b" not in second
    assert 'request {"to":"ann@example.com"}' in second


def test_those_in_doubt_alone(run: Run, paid: str) -> None:
    (line,) = run("effects", paid, CUSTOMER, "--in-doubt", "--json").lines
    assert json.loads(line)["key"] == "mail\x1b[2J"
    with everturn.open(paid) as store:
        store.finish_effect(CUSTOMER, "mail\x1b[2J")
    assert run("effects", paid, CUSTOMER, "--in-doubt").out == "no effect is in doubt\n"


def test_those_in_doubt_are_found_in_all_sessions(run: Run, paid: str) -> None:
    with everturn.open(paid) as store:
        store.begin_effect("customer-7", "refund 7", {"amount": 7})
        store.begin_effect("somebody else", "mail")
        for number in range(101):  # more than are asked for at once
            store.save_context(f"many-{number}", "Hi", "Hello")
    told = [line.split("  ")[:2] for line in run("effects", paid, "--in-doubt").lines]
    assert [session for session, _ in told] == [CUSTOMER, "customer-7", "somebody else"]
    assert told[1][1] == "refund 7"
    some = [json.loads(line) for line in run("effects", paid, "--prefix", "customer-", "--json").lines]
    assert [(one["session_id"], one["key"]) for one in some] == [
        *((CUSTOMER, key) for key in ("refund 1234", "mail\x1b[2J")),
        ("customer-7", "refund 7"),
    ]
    assert run("effects", paid, "--prefix", "many-", "--in-doubt").out == "no effect is in doubt\n"


@pytest.mark.parametrize(
    ("option", "status"), [(["--finished", "--result", '{"sent": true}'], "finished"), (["--failed"], "failed")]
)
def test_a_person_resolves_one_with_a_reason(run: Run, paid: str, option: list[str], status: str) -> None:
    ran = run("effects", "resolve", paid, CUSTOMER, "mail\x1b[2J", *option, "--reason", "the log says so")
    assert ran.code == 0, ran.err
    with everturn.open(paid) as store:
        _, mail = store.get_effects(CUSTOMER)
    assert (mail.status, mail.note) == (status, "the log says so")
    assert mail.result == ({"sent": True} if status == "finished" else None)


@pytest.mark.parametrize(
    "words",
    [
        ["--finished"],
        ["--reason", "x"],
        ["--finished", "--failed", "--reason", "x"],
        ["--failed", "--result", "1", "--reason", "x"],
        ["--finished", "--result", "{", "--reason", "x"],
    ],
)
def test_half_an_answer_resolves_nothing(run: Run, paid: str, words: list[str]) -> None:
    ran = run("effects", "resolve", paid, CUSTOMER, "mail\x1b[2J", *words)
    assert ran.code == 2
    with everturn.open(paid) as store:
        assert store.get_effects(CUSTOMER)[1].status == "started"


def test_an_effect_that_never_began_is_a_mistake_of_the_caller(run: Run, paid: str) -> None:
    ran = run("effects", "resolve", paid, CUSTOMER, "nothing", "--finished", "--reason", "x")
    assert ran.code == 2
    assert "was never begun" in ran.err
    assert run("effects", paid, CUSTOMER, "too much").code == 2


def test_show_and_log_have_effects(run: Run, paid: str) -> None:
    assert "2 effects, which no rollback takes back:" in run("show", paid, CUSTOMER).out
    log = run("log", paid, CUSTOMER).out
    assert "effect begun: refund 1234" in log
    assert "effect finished: refund 1234" in log


def test_show_has_the_worker_that_holds_the_lease(run: Run, paid: str) -> None:
    assert "leased by" not in run("show", paid, CUSTOMER).out
    with everturn.open(paid) as store, store.lease(CUSTOMER) as lease:
        by = store.get_lease(CUSTOMER).by
        assert f"pid-{os.getpid()}-" in by
        told = run("show", paid, CUSTOMER).lines[1]
        assert told.startswith(f"leased by {by} since ")
        assert told.endswith(f"more (token {lease.token})")


def test_an_export_brings_effects_along(run: Run, paid: str, tmp_path: Path) -> None:
    file, other = tmp_path / "all.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    assert run("export", paid, CUSTOMER, "-o", file).code == 0
    assert run("import", other, file).out == "1 imported; 1 compared and equal\n"
    with everturn.open(paid) as here, everturn.open(other) as there:
        assert [effect.status for effect in there.get_effects(CUSTOMER)] == ["finished", "started"]
        assert there.get_effects(CUSTOMER) == here.get_effects(CUSTOMER)
        assert there.once(CUSTOMER, "refund 1234", lambda: pytest.fail("paid twice")) == {"refund": "r-1"}


def test_a_backup_has_effects(run: Run, paid: str, tmp_path: Path) -> None:
    assert run("backup", paid, tmp_path / "copy.db").code == 0
    with everturn.open(paid) as store, everturn.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert [effect.status for effect in copy.get_effects(CUSTOMER)] == ["finished", "started"]
        assert copy.get_effects(CUSTOMER) == store.get_effects(CUSTOMER)
        assert copy.once(CUSTOMER, "refund 1234", lambda: pytest.fail("paid twice")) == {"refund": "r-1"}


def test_the_preview_of_a_rollback_lists_effects_that_stay_done(paid: str) -> None:
    """Those that were begun behind the snapshot, and did not fail."""
    with everturn.open(paid) as store:
        store.begin_effect(CUSTOMER, "letter")
        store.fail_effect(CUSTOMER, "letter", "no stamps")
        store.save_snapshot(CUSTOMER, "all done")
        before = store.get_effects(CUSTOMER)
    _, said = in_a_terminal(b"y\n", "rollback", paid, CUSTOMER, "before the new prompt")
    preview = said.partition("[y/N]")[0]
    assert "2 effects that no rollback takes back:" in preview
    assert "refund 1234" in preview
    assert "in doubt or in progress" in preview
    assert "letter" not in preview
    with everturn.open(paid) as store:
        assert store.get_effects(CUSTOMER) == before
    assert "that no rollback takes back" not in in_a_terminal(b"n\n", "rollback", paid, CUSTOMER, "all done")[1]
