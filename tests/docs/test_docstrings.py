"""What a user reads by hovering over a method, or by `help()`: every parameter is explained, and examples run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import everturn
from everturn import MemoryStore

METHODS = {
    name: method
    for name, method in vars(MemoryStore).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
FUNCTIONS = {
    name: getattr(everturn, name) for name in ("open", "open_async", "from_client", "copy", "copy_async")
} | METHODS
# The methods that a user needs first.
WITH_EXAMPLE = (
    "add_messages",
    "get_history",
    "get_context",
    "save_snapshot",
    "rollback_to_snapshot",
    "trim",
    "fold",
    "erase",
    "erase_all",
)
SHARED = ("key", "expected_version", "snapshot", "lease")
KEYED_BY_EFFECT = ("begin_effect", "finish_effect", "fail_effect", "once")  # their key names an effect
PARAMETER = re.compile(r"^    (\w+): (.+?)(?=^    \w|\Z)", re.MULTILINE | re.DOTALL)
NO_BEGINNING = ("what", "who", "whose", "where", "that", "the", "see", "for", "all", "a")


def section(function: Callable[..., Any], title: str) -> str:
    """Return one section of a docstring, without its title; empty if there is none."""
    found = re.search(rf"^{title}:\n(.*?)(?=^\S|\Z)", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def explained(function: Callable[..., Any]) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in PARAMETER.findall(section(function, "Args"))}


def example(function: Callable[..., Any]) -> str:
    """Return the code in a docstring, which editors show as code since it is fenced; empty if there is none."""
    found = re.search(r"^```python\n(.*?)^```", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_explained_in_its_order(name: str) -> None:
    parameters = [each for each in inspect.signature(FUNCTIONS[name]).parameters if each != "self"]
    assert list(explained(FUNCTIONS[name])) == parameters


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_first_line_begins_with_a_verb_and_ends_a_sentence(name: str) -> None:
    first = (inspect.getdoc(FUNCTIONS[name]) or "").splitlines()[0]
    assert first.split()[0].lower() not in NO_BEGINNING
    assert first.endswith(".")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_returns_and_raises(name: str) -> None:
    if name != "close":  # returns nothing, and raises nothing that one could handle
        assert (
            len(re.findall(r"^    \S", section(METHODS[name], "Returns"), re.MULTILINE)) == 1
        )  # a line more is indented
        assert "MemoryStoreBackendError: " in section(METHODS[name], "Raises") or name == "health"  # that reports it


@pytest.mark.parametrize("name", SHARED)
def test_a_parameter_that_many_methods_have_is_explained_alike(name: str) -> None:
    methods = [method for each, method in METHODS.items() if name != "key" or each not in KEYED_BY_EFFECT]
    texts = {text for method in methods if (text := explained(method).get(name))}
    shortest = min(texts, key=len)
    assert all(text.startswith(shortest) for text in texts)
    assert len(texts) <= 2  # fork adds which session's version it is


def test_both_ways_to_open_are_explained_alike() -> None:
    assert explained(everturn.open) == explained(everturn.open_async)
    shared = explained(everturn.from_client).keys() & explained(everturn.open).keys() - {"options", "max_connections"}
    assert all(explained(everturn.from_client)[name] == explained(everturn.open)[name] for name in shared)


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_example_of_a_method_runs(name: str) -> None:
    code = example(METHODS[name])
    assert f"store.{name}(" in code
    with everturn.open("sqlite://") as store:
        store.save_context("customer-42", "Hi!", "Hello.")
        snapshot = store.save_snapshot("customer-42")
        store.save_context("customer-42", "My order is 1234.", "Thanks!")
        exec(code, {"store": store, "snapshot": snapshot, "ChatMessage": everturn.ChatMessage})
