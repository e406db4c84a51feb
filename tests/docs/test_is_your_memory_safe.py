"""The page "Is your agent's memory safe?": its commands are run on its store, and its table has all shapes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from everturn.testing.kit.factory_text import look_at
from everturn.testing.shapes import SHAPES
from tests.docs.test_snippets import ROOT, snippets
from tests.docs.test_transcripts import lines, run

NAME = "docs/start/is-your-memory-safe.md"
PAGE = (ROOT / NAME).read_text("utf-8")
ROWS = re.findall(r"^\| an? .* \| (`.*) \|(.*)\|$", PAGE, re.MULTILINE)
# What `make test` has no framework for is run by `make scorecard`, through the factories of examples/peers.
ELSEWHERE = ("langchain_community", "langgraph.checkpoint.sqlite", "strands")
RELEASED = [(methods, target.strip("` ")) for methods, target in ROWS if target.startswith(" `")]
HERE = [(methods, target) for methods, target in RELEASED if not target.startswith(ELSEWHERE)]


def test_the_three_commands_give_the_verdict_that_is_shown(tmp_path: Path) -> None:
    (store,) = snippets(ROOT / NAME, "python")
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "memory.py").write_text(store, "utf-8")
    _install, init, check = lines(NAME, "console")
    done = run(init, tmp_path)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "memory_target.py").read_text("utf-8")
    (shown,) = snippets(ROOT / NAME, "py")
    assert written.endswith(shown)
    clauses = ("append-append", "killed-in-append", "append-synced")
    done = run(f"{check} --json r.json {' '.join(f'--clause {clause}' for clause in clauses)}", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    told = {one["id"]: one["status"] for one in json.loads((tmp_path / "r.json").read_text("utf-8"))["clauses"]}
    assert told == dict.fromkeys(clauses, "broken")
    (verdict,) = snippets(ROOT / NAME, "text")
    said = " ".join(done.stdout.split())
    for line in ("promise ", "incident ", "remedy "):
        (words,) = (one.strip() for one in verdict.splitlines() if one.strip().startswith(line))
        assert " ".join(words.split()) in said


def test_its_table_has_every_shape() -> None:
    named = {frozenset(re.findall(r"(\w+)[(`]", methods)) for methods, _ in ROWS}
    for shape in SHAPES:
        calls = {call.partition("(")[0] for call in shape.calls}
        assert any(calls <= names for names in named), shape.name
    assert len(ROWS) == len(SHAPES)


@pytest.mark.parametrize(("methods", "target"), HERE, ids=[target for _, target in HERE])
def test_a_released_store_of_the_table_has_that_shape(methods: str, target: str) -> None:
    shape = look_at(target).shape
    assert shape is not None
    assert shape.calls[0].partition("(")[0] in methods
