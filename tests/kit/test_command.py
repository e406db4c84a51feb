"""`everturn check` as a person and a CI job meet it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from everturn.cli import main
from everturn.testing.kit.environment import Environment

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
    assert written["clauses"][0]["status"] == "broken"
    assert "<svg" in (tmp_path / "r.html").read_text()
    again = check("--judge", ".everturn/append-append.jsonl")
    assert again.returncode == 1
    assert (tmp_path / ".everturn/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tests.kit.stores:shapeless"], "none of the pairs of methods"),
        (["tests.kit.stores:shapeless"], "add_messages/get_history, save_context/load_memory"),
        (["tests.kit.stores:never_opens"], "no such luck"),
        (["nonsense"], "neither a store URL"),
        ([], "give a TARGET"),
        (["sqlite://", "--clause", "ordr"], "did you mean order"),
        (["--explain", "ordr"], "did you mean order"),
        (["sqlite://", "--contract", "3"], "there are 1, 2"),
        (["sqlite://", "--contract", "1", "--clause", "lease"], "no clause 'lease'"),
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


def test_a_run_of_contract_1_has_its_clauses_and_says_so(check: Check, tmp_path: Path) -> None:
    assert "lease-fence" in check("--list").stdout
    assert "lease-fence" not in check("--list", "--contract", "1").stdout
    check("tests.kit.sound.memory:threads", "--quick", "--contract", "1", "--clause", "order", "--json", "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["contract_version"] == "1"


def test_init_writes_what_to_start_from_and_no_more_than_once(check: Check, tmp_path: Path) -> None:
    assert check("--init").returncode == 0
    assert (tmp_path / ".github/workflows/memory-contract.yml").exists()
    done = check("memory_target:factory")
    assert (done.returncode, "open your store here" in done.stderr) == (2, True)
    assert check("--init").returncode == 2


def test_a_baseline_makes_what_it_has_known_and_nothing_else(check: Check, tmp_path: Path) -> None:
    words = ("tests.kit.stores:unlocked", "--clause", "append-append", "--seed", "1")
    assert check(*words, "--json", "before.json", "--quick").returncode == 1
    done = check(*words, "--baseline", "before.json", "--badge", "badge.json", "--quick")
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "badge.json").read_text())["message"] == "1 known"
    done = check("tests.kit.sound.memory:threads", "--clause", "append-append", "--baseline", "before.json", "--quick")
    assert "Better than the baseline: append-append" in " ".join(done.stdout.split())
    assert check(*words[:1], "--clause", "order", "--json", "other.json").returncode == 0
    done = check(*words, "--baseline", "other.json", "--quick")
    assert (done.returncode, "no result for 1" in " ".join(done.stdout.split())) == (1, True)
    (tmp_path / "empty.json").write_text("{}")
    assert "is no baseline" in check(*words, "--baseline", "empty.json").stderr


def test_a_report_that_cannot_be_written_takes_no_other_along(check: Check, tmp_path: Path) -> None:
    done = check("tests.kit.sound.memory:threads", "--clause", "order", "--json", "no/such/place", "--badge", "b.json")
    assert (done.returncode, "no/such/place" in done.stderr) == (2, True), done.stderr
    assert "all hold" in done.stdout
    assert (tmp_path / "b.json").exists()


def test_a_kit_that_fails_reports_what_it_had_found(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Environment) -> None:
        real(self)
        raise RuntimeError("a server would not end")

    real = Environment.close
    monkeypatch.setattr(Environment, "close", fail)
    done = check("tests.kit.sound.memory:threads", "--clause", "order", "--json", "r.json")
    assert (done.returncode, "a server would not end" in " ".join(done.stdout.split())) == (1, True)
    assert json.loads((tmp_path / "r.json").read_text())["clauses"][0]["status"] == "holds"


def test_a_ledger_makes_a_known_failure_pass(check: Check, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[known]\nappend-append = "issue 7"\n')
    words = ("--clause", "append-append", "--ledger", "known.toml")
    assert check("tests.kit.stores:unlocked", *words).returncode == 0
