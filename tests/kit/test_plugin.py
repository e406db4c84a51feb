"""The contract in pytest runs of others: items, a class of tests, skips, known failures, and no way around."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from everturn.testing.contract import CLAUSES, clauses_of

ROOT = Path(__file__).parents[2]
MINE = """
    from everturn.testing import MemoryContract

    class Store:
        def __init__(self):
            self.sessions = {}
        def add_messages(self, session_id, messages):
            self.sessions[session_id] = [*self.sessions.get(session_id, []), *messages]
        def get_history(self, session_id):
            return list(self.sessions.get(session_id, []))

    def factory(where):
        return Store()

    factory.processes = False

    class TestMine(MemoryContract):
        target = factory
        quick = True
"""


def clauses_named(*words: str, offered: set[str]) -> tuple[list[str], list[str]]:
    """The ids of clauses that `-k` finds by these words: those of a store that offers so much, and the
    others."""
    named = [clause for clause in CLAUSES if any(word in clause.id for word in words)]
    needs_more = [clause.id for clause in named if clause.missing(frozenset(offered))]
    return [clause.id for clause in named if clause.id not in needs_more], needs_more


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(ROOT)  # the workers get it, too
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def call(*words: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**{name: dedent(text) for name, text in files.items()})
        return pytester.runpytest_inprocess("-p", "everturn.testing.plugin", "-p", "no:cacheprovider", *words)

    return call


def test_a_target_adds_one_item_per_clause_beside_the_others(run: object) -> None:
    words = (
        "--memory-target",
        "tests.kit.sound.memory:threads",
        "--memory-quick",
        "-k",
        "order or undo or test_other",
    )
    done = run(*words, test_it="def test_other(): pass")  # type: ignore[operator]
    outcomes = done.parseoutcomes()
    offered, needs_more = clauses_named("order", "undo", offered={"appends", "threads", "trim", "clear"})
    assert "order" in offered
    assert "undo" in needs_more
    assert (outcomes["passed"], outcomes["skipped"]) == (len(offered) + 1, len(needs_more))  # and test_other
    every, chosen = len(CLAUSES) + 1, len(offered) + len(needs_more) + 1
    done.stdout.fnmatch_lines([f"collected {every} items / {every - chosen} deselected / {chosen} selected"])


def test_a_broken_clause_fails_with_its_story(run: object, pytester: pytest.Pytester) -> None:
    words = ("--memory-target", "tests.kit.stores:unlocked", "-k", "append-append", "--junitxml", "junit.xml")
    done = run(*words, test_it="def test_other(): pass")  # type: ignore[operator]
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*acknowledged, and a later read does not have it*", "replay:*append-append@*"])
    junit = pytester.path.joinpath("junit.xml").read_text("utf-8")
    assert "broken" in junit
    assert "remedy:   Let the database add" in junit


def test_a_known_failure_is_an_expected_one(run: object, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text('[known]\nappend-append = "issue 7"\n')
    words = ("--memory-target", "tests.kit.stores:unlocked", "--memory-ledger", "known.toml")
    done = run(*words, "-k", "append-append or ledger", test_it="def test_other(): pass")  # type: ignore[operator]
    assert done.parseoutcomes()["xfailed"] == 1
    assert done.ret == 0


@pytest.mark.parametrize(
    ("words", "says"), [(["nonsense"], "neither a store URL"), (["sqlite:///x", "--memory-use-server"], "use-server")]
)
def test_what_is_no_target_is_a_usage_error(run: object, words: list[str], says: str) -> None:
    done = run("--memory-target", *words, test_it="def test_other(): pass")  # type: ignore[operator]
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{says}*"])


def test_a_target_that_does_not_open_fails_once(run: object) -> None:
    words = ("--memory-target", "tests.kit.stores:shapeless", "-m", "memory_contract")
    done = run(*words, test_it="def test_other(): pass")  # type: ignore[operator]
    assert done.parseoutcomes()["failed"] == 1
    assert "passed" not in done.parseoutcomes()


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_class_of_tests_is_the_contract(run: object, mode: str) -> None:
    done = run("--import-mode", mode, "-k", "order or twins", test_mine=MINE)  # type: ignore[operator]
    outcomes = done.parseoutcomes()
    offered, needs_more = clauses_named("order", "twins", offered={"appends"})
    assert (outcomes["passed"], outcomes["skipped"]) == (len(offered), len(needs_more))


@pytest.mark.parametrize("line", ["def test_order(self): pass", "test_order = None", "test_the_ledger_is_true = None"])
def test_a_clause_cannot_be_overridden_or_removed(run: object, line: str) -> None:
    done = run("-k", "order", test_mine=dedent(MINE) + f"    {line}\n")  # type: ignore[operator]
    assert done.ret != 0
    done.stdout.fnmatch_lines(["*a contract is kept as a whole*"])


def test_a_ledger_of_a_class_that_is_not_true_fails(run: object) -> None:
    done = run("-k", "order or ledger", test_mine=dedent(MINE) + '    known = {"order": "because"}\n')  # type: ignore[operator]
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*remove the entry*"])


def test_a_version_of_the_contract_leaves_out_later_clauses(run: object) -> None:
    words = ("--memory-target", "tests.kit.sound.memory:threads", "--memory-contract")
    done = run(*words, "1", "-k", "order or lease-fence", test_it="")  # type: ignore[operator]
    done.stdout.fnmatch_lines([f"collected {len(clauses_of('1'))} items / *"])
    assert "skipped" not in done.parseoutcomes()
    done = run(*words, "99", test_it="")  # type: ignore[operator]
    done.stderr.fnmatch_lines(["*no contract '99'*"])


def test_a_class_of_an_earlier_contract_skips_later_clauses(run: object) -> None:
    done = run("-k", "order or lease_fence", "-rs", test_mine=dedent(MINE) + '    contract = "1"\n')  # type: ignore[operator]
    done.stdout.fnmatch_lines(["*came with contract 2*"])
