"""A store with a past, and the command run in this process: its exit code, and what it wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import everturn
from everturn.cli import main
from tests.conversation import have_it


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pipe, whatever runs the tests: xdist, for one, says how wide its terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["everturn", *map(str, words)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file with that conversation, and another."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        have_it(store)
        store.save_context("customer-43", "Hello", "Hi!")
    return url
