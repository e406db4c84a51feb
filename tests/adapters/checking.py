"""What tests of adapters do alike: run the contract kit or an agent in a process, show what was written, import an
adapter without its framework, and look at what a framework's class has."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.runner import QUICK_SECONDS
from everturn.testing.results import ClauseResult
from tests.integration.children import run
from tests.kit.running import report
from tests.tiers import deep

ROOT = Path(__file__).parents[2]

# What clauses of the contract need and an adapter lacks: for lack of a server or a file; as all frameworks do; as most.
BACKENDS = {
    "sqlite": {"server", "redis_url"},
    "valkey": {"files", "system_calls", "corrupt", "vfs"},
    "dynamodb": {"files", "system_calls", "corrupt", "vfs", "redis_url"},
}
ALL_LACK = {"key", "expected_version", "trim", "trim_keeps_prompts", "clear_all", "tool_calls", "summaries"}
ALL_LACK |= {"compact", "pays_once", "lease", "fence", "effects"}
ALL_LACK |= {"items", "hold", "subgraphs", "listing", "agents"}
# but for the one that has them:
ALL_LACK |= {"pending_writes", "applications", "state", "state_scopes", "delete_message"}
# Clauses about servers that stores of ours give no occasion for, with what the kit says of them.
GIVE_NO_OCCASION = {"cut-in-commit": "no COMMIT or EXEC is sent: a change is one request"}
# Of DynamoDB, whose stand-ins have no switch for it.
DYNAMODB_GIVES_NO_OCCASION = {"after-a-fault": "the stand-in that runs here cannot be told to refuse writes"}
# Of adapters that refuse a turn whose session has changed since it was read: of 40 callers one is served at a time, and
# all others try again, which are 1,640 tries. The stand-in that runs here answers too slowly for that.
TOO_MANY_TRIES = {"dynamodb": {"crowd"}}
# Of stores with awaited methods alone.
AWAITED_GIVE_NO_OCCASION = {"reader-beside-append": "an awaited store runs in one thread"}
# Of frameworks whose messages take any value, so that the kit cannot make one that a store has to refuse.
ALL_IS_TAKEN = {"refused-beside-append": "no call of the kit was refused"}
SNAPSHOTS = {"save_snapshot", "rollback", "list_snapshots", "delete_snapshot", "undo"}

WITHOUT = """
import importlib, importlib.metadata as metadata, sys
found = {found!r}
def version(name):
    if name not in found:
        raise metadata.PackageNotFoundError(name)
    return found[name]
metadata.version = version
importlib.import_module({module!r})
"""


ALL_CLAUSES = frozenset(clause.id for clause in CLAUSES)
# Kills, faults, clocks, long sessions and races at every point test the store below an adapter more than the adapter;
# a plain process imports the framework once more. `make deep` has them for every adapter, `make test` for LangGraph's.
RACES = {"processes-lose-nothing", "tasks-lose-nothing", "whole-turns", "sees-later-writes", "delete-message"}
LONG = {"long-history", "large-turn", "long-clear", "long-trim", "long-snapshot", "long-replace", "long-latest"}
LONG |= {"long-read", "killed-in-long-change", "plain-process", "sequences"}
LONG |= {"append-in-long-change", "large-turn-at-once", "isolation-of-many"}
MAIN_CLAUSES = (
    frozenset(
        clause.id
        for clause in CLAUSES
        if clause.layer not in {"crash", "faults"} and (clause.layer != "concurrency" or clause.id in RACES)
    )
    - LONG
)
RUNS = [("sqlite", MAIN_CLAUSES), *(deep((backend, ALL_CLAUSES)) for backend in BACKENDS)]


def hold(
    target: str,
    *,
    lacks: Collection[str],
    untried: Mapping[str, str] | None = None,
    slow: str = "",
    clauses: Collection[str] = ALL_CLAUSES,
) -> None:
    """Run the contract, as `everturn check --quick` does, on `tests.adapters.<target>`: each of these clauses holds,
    but for those that need what the adapter `lacks`, and for the `untried` ones, with what the kit says of them.

    A clause that was not tried for any other reason fails the test, and so does one that holds and was not to. `slow`
    is a clause that is run alone, with minutes of its own.
    """
    chosen = [clause for clause in CLAUSES if clause.id in clauses]
    found = _checked(target, [clause.id for clause in chosen if clause.id != slow])
    if slow in clauses:
        found |= _checked(target, [slow], budget=60)
    offered = frozenset(name for clause in CLAUSES for need in clause.needs for name in need.split("|")) - set(lacks)
    known = dict(untried or {}) | ({} if "redis_url" in lacks else GIVE_NO_OCCASION)
    known |= DYNAMODB_GIVES_NO_OCCASION if target.endswith("on_dynamodb") else {}
    known |= {} if "tasks" in lacks or "threads" not in lacks else AWAITED_GIVE_NO_OCCASION
    offers = {clause.id for clause in chosen if not clause.missing(offered)}
    told = {name: text for name, text in known.items() if name in offers}
    expected = {
        clause.id: "holds" if clause.id in offers and clause.id not in told else "not_offered" for clause in chosen
    }
    assert {name: clause.status for name, clause in found.items()} == expected, _violations(found)
    assert {name: found[name].detail for name in told} == told


def _violations(found: Mapping[str, ClauseResult]) -> str:
    """What is to be read of a clause that is broken or was not tested."""
    wrong = [clause for clause in found.values() if clause.status not in {"holds", "not_offered"}]
    return "\n\n".join(f"{clause.id}: {clause.detail}\n{clause.replay}\n{clause.violations}" for clause in wrong)


def _checked(target: str, names: Collection[str], budget: float = QUICK_SECONDS) -> dict[str, ClauseResult]:
    """What a run says of each clause, by its id."""
    if not names:
        return {}
    return {clause.id: clause for clause in report(f"adapters.{target}", *names, budget=budget).clauses}


def ask(main: Callable[[str, str], Any], url: str, question: str) -> dict[str, Any]:
    """What `main` of a worker tells, in a process of its own, when an agent was asked."""
    told: dict[str, Any] = json.loads(run(main, url, question).splitlines()[-1])
    return told


def refusal(module: str, found: dict[str, str]) -> str:
    """What importing an adapter says where the frameworks that are installed are these, by name and version."""
    script = WITHOUT.format(found=found, module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr


def needs(extra: str) -> list[str]:
    """What an extra of ours installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named: list[str] = project["optional-dependencies"][extra]
    return named


def attributes(kind: type) -> set[str]:
    """The names of what a class itself has for others beside methods: properties, values, and fields it declares."""
    methods = FunctionType | classmethod | staticmethod
    values = {name for name, value in vars(kind).items() if not isinstance(value, methods)}
    return {name for name in values | set(inspect.get_annotations(kind)) if not name.startswith("_")}


def shows(url: str, session_id: str, *words: str) -> None:
    """`everturn show` tells these words, in this order."""
    command = [sys.executable, "-c", "from everturn.cli import main; main()", "show", url, session_id]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    place = 0
    for word in words:
        place = shown.find(word, place)
        assert place >= 0, f"{word!r} is not where it should be in\n{shown}"
