"""The page of messages quotes messages that everturn has. Somebody looks for one word by word, mostly at night."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/troubleshooting.md"
SHORTEST = 9  # characters of a part that is looked for: less could be anything
OF_OTHERS = {"'coroutine' object does not support the asynchronous context manager protocol"}  # Python's own
EXAMPLES = {"messages[0].metadata.score: NaN cannot be stored": "cannot be stored"}


@cache
def source() -> str:
    """All constant texts of the package, parts of f-strings among them."""
    trees = (ast.parse(path.read_text("utf-8")) for path in (ROOT / "src/everturn").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return "\0".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def messages() -> Iterator[str]:
    """The messages in the first column of the tables."""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


@pytest.mark.parametrize("message", sorted({*messages()} - OF_OTHERS))
def test_a_message_is_one_that_everturn_has(message: str) -> None:
    parts = (part.strip("; ") for part in EXAMPLES.get(message, message).split("..."))
    assert [part for part in parts if len(part) >= SHORTEST and part not in source()] == []


def test_the_page_has_messages() -> None:
    assert len({*messages()}) > 50
