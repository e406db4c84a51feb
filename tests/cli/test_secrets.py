"""The command never prints a password, whichever URL it was given and whatever it says of it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.integration.test_secrets import SECRET, URLS


@pytest.mark.parametrize("url", [*URLS, f"postgresql:/me:{SECRET}@host/db", f"redis:/:{SECRET}@host"])
def test_what_the_command_says_has_no_password(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.cli.arguments.TIMEOUT", 0.2)
    ran = run("sessions", url)
    assert ran.code == 2
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize("words", [("doctor",), ("copy", "sqlite:///memory.db"), ("bench",), ("check", "--use-server")])
def test_nor_has_what_others_say(run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.cli.arguments.TIMEOUT", 0.2)
    command, *rest = words
    ran = run(command, f"valkey://me:{SECRET}@127.0.0.1:1/0", *rest)
    assert ran.code != 0
    assert SECRET not in ran.out + ran.err
