"""`everturn check` as a person and a CI job meet it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from everturn.cli import main

ROOT = Path(__file__).parents[2]


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Check = Callable[..., Ran]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    """The command, in this process and in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("COLUMNS", "500")

    def call(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["everturn", "check", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Ran(int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_a_sound_store_exits_with_0(check: Check, tmp_path: Path) -> None:
    done = check("tests.kit.sound.memory:threads", "--quick", "--layers", "sequential")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all hold" in done.stdout


def test_a_broken_store_exits_with_1_and_tells_how_to_see_it_again(check: Check, tmp_path: Path) -> None:
    words = ("--clause", "append-append", "--seed", "7", "--json", "r.json", "--html", "r.html")
    done = check("tests.kit.stores:unlocked", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "everturn check tests.kit.stores:unlocked --clause append-append@" in done.stdout.replace(
        "\n            ", " "
    )
    written = json.loads((tmp_path / "r.json").read_text())
    assert (written["seed"], written["target"]) == (7, "tests.kit.stores:unlocked")
    assert written["clauses"][0]["status"] == "fail"
    assert "<svg" in (tmp_path / "r.html").read_text()
    again = check("--judge", ".everturn/append-append.jsonl")
    assert again.returncode == 1
    assert (tmp_path / ".everturn/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tests.kit.stores:shapeless"], "none of the shapes"),
        (["tests.kit.stores:shapeless"], "add_messages/get_history, save_context/load_memory"),
        (["tests.kit.stores:never_opens"], "no such luck"),
        (["nonsense"], "neither a store URL"),
        ([], "give a TARGET"),
        (["sqlite://", "--clause", "ordr"], "did you mean order"),
        (["--explain", "ordr"], "did you mean order"),
        (["--judge", "nowhere.jsonl"], "nowhere.jsonl"),
        (["sqlite://", "--ledger", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_cannot_be_run_exits_with_2_and_says_why(check: Check, words: list[str], says: str) -> None:
    done = check(*words)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr or "no such luck" in says


def test_clauses_are_listed_and_explained(check: Check, tmp_path: Path) -> None:
    listed = check("--list", "--layers", "crash").stdout
    assert "killed-in-append" in listed
    assert "store-and-retrieve" not in listed
    assert "38 of 39 power cuts" in check("--explain", "power-loss").stdout
    assert "os.register_at_fork" in check("--explain", "fork").stdout


def test_init_writes_what_to_start_from_and_no_more_than_once(check: Check, tmp_path: Path) -> None:
    assert check("--init").returncode == 0
    assert (tmp_path / ".github/workflows/memory-contract.yml").exists()
    done = check("memory_target:factory")
    assert (done.returncode, "open your store here" in done.stderr) == (2, True)
    assert check("--init").returncode == 2


def test_a_ledger_makes_a_known_failure_pass(check: Check, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[known]\nappend-append = "issue 7"\n')
    words = ("--clause", "append-append", "--ledger", "known.toml")
    assert check("tests.kit.stores:unlocked", *words).returncode == 0
