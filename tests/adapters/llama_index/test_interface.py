"""The interfaces are LlamaIndex's, all of them: a release that adds to one is noticed here."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms import types as llama
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from everturn.adapters.llama_index import EverturnChatStore, EverturnDBChatStore, messages
from tests.adapters.checking import ROOT, refusal

PAIRS = [(BaseChatStore, EverturnChatStore), (AsyncDBChatStore, EverturnDBChatStore)]


def public(kind: type) -> dict[str, Any]:
    """Its methods, without one that Pydantic adds to a class with private attributes."""
    found = {
        name: value for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)
    }
    return {name: value for name, value in found.items() if name != "model_post_init"}


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=["chat store", "db chat store"])
def test_every_method_is_ours_and_takes_what_the_interface_says(theirs: type, ours: type) -> None:
    assert set(public(ours)) == set(public(theirs))
    for name, method in public(theirs).items():
        mine = public(ours)[name]
        assert [(each.name, each.kind, each.default) for each in inspect.signature(mine).parameters.values()] == [
            (each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()
        ]
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(method)
    assert ours.class_name() == ours.__name__  # type: ignore[attr-defined]


def test_there_is_no_block_and_no_field_that_we_do_not_know() -> None:
    """A new one would come back as an error that names it; better that we know first."""
    kinds = {kind for _, kind in inspect.getmembers(llama, inspect.isclass) if issubclass(kind, llama.BaseContentBlock)}
    abstract = {llama.BaseContentBlock, llama.BaseRecursiveContentBlock, llama.ChatMessage}
    assert kinds - abstract == set(messages._MODELS.values())
    assert set(llama.ChatMessage.model_fields) == {"role", "additional_kwargs", "blocks"}
    assert {status.value for status in MessageStatus} == {"active", messages.ARCHIVED}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs llama-index-core, which is not installed"),
        ({"llama-index-core": "0.14.3"}, "needs llama-index-core 0.14.24 or newer, and 0.14.3 is installed"),
    ],
    ids=["missing", "too old"],
)
def test_without_llama_index_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    said = refusal("everturn.adapters.llama_index", found)
    assert why in said
    assert 'pip install "everturn[llama-index]"' in said


def test_the_extra_names_what_the_adapter_needs() -> None:
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["llama-index"] == ["llama-index-core>=0.14.24"]
