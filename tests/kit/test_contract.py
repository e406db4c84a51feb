"""The clauses as a whole, and the page that is made from them."""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from everturn.testing import contract
from everturn.testing.contract import CLAUSES, clauses_of
from everturn.testing.contract.docs_page import page
from everturn.testing.kit.clause import Clause
from everturn.testing.results import CONTRACT_VERSION, CONTRACT_VERSIONS
from tests.kit.false_alarms import quick_run
from tests.tiers import first

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"
CLASSES = PAGE.parent / "decisions" / "119-a-module-for-each-class.md"


def test_the_page_is_in_step_with_the_clauses() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m everturn.testing.contract > docs/contract.md"


def test_there_are_eight_layers_and_at_least_sixty_clauses() -> None:
    layers = Counter(clause.layer for clause in CLAUSES)
    assert list(layers) == [
        *("sequential", "concurrency", "persistence", "edge", "faults", "crash", "compaction"),
        "resume",
    ]
    assert len(CLAUSES) >= 60


def test_version_1_keeps_its_clauses() -> None:
    ids = sorted(clause.id for clause in clauses_of("1"))
    assert len(ids) == 134
    assert hashlib.sha256("\n".join(ids).encode()).hexdigest().startswith("397b6c21a8618c63")


def test_the_latest_version_has_every_clause() -> None:
    assert clauses_of() == clauses_of(CONTRACT_VERSION) == CLAUSES
    assert {str(clause.since) for clause in CLAUSES} == set(CONTRACT_VERSIONS)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.id)
def test_a_clause_is_one_sentence_with_an_incident(clause: Clause) -> None:
    assert clause.promise.endswith(".")
    assert clause.incident
    assert clause.id == clause.id.lower()
    assert "@" not in clause.id


def test_every_clause_has_a_remedy_in_one_line() -> None:
    of_no_use = [one.id for one in CLAUSES if not re.fullmatch(r"[A-Z`].{28,180}[.]", one.remedy)]
    assert of_no_use == []


def test_remedies_stand_in_the_order_of_the_contract() -> None:
    remedies = tomllib.loads((Path(contract.__file__).parent / "remedies.toml").read_text("utf-8"))
    assert list(remedies) == [clause.id for clause in CLAUSES]


def test_the_page_of_classes_names_every_module_of_clauses() -> None:
    text = CLASSES.read_text("utf-8")
    modules = {clause.test.__module__.rpartition(".")[2] for clause in CLAUSES}
    assert modules - set(re.findall(r"`(\w+)`", text)) == set()
    testing = Path(contract.__file__).parents[1]
    assert [name for name in re.findall(r"`(\w+/\w+[.]py)`", text) if not (testing / name).exists()] == []


@pytest.mark.parametrize("target", first(2, ["sqlite:///memory.db", "tests.kit.sound.memory:tasks", "dynamodb://a"]))
def test_a_sound_store_keeps_every_promise(target: str) -> None:
    """Run all clauses at once, as users do: they share a place. `make false-alarms` has more stores and seeds."""
    report = quick_run(target, seed=secrets.randbelow(10**6))
    broken = [clause for clause in report.clauses if clause.status not in {"holds", "not_offered"}]
    assert broken == [], f"seed {report.seed}"
