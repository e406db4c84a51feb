"""Attributes of frameworks' classes beside methods: a release that adds one is noticed here.

Their methods are each adapter's own test_interface.py's.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property

import pytest
from agents.memory import Session, SessionABC
from google.adk.sessions import BaseSessionService
from langchain_core.chat_history import BaseChatMessageHistory
from langgraph.checkpoint.base import BaseCheckpointSaver
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from pydantic_ai.conversation_store import ConversationStore

from tests.adapters.checking import attributes

FRAMEWORKS = ("agents", "fastapi", "google.adk", "langchain_core", "langgraph", "llama_index", "pydantic_ai")
KNOWN: dict[type, set[str]] = {
    BaseChatMessageHistory: {"messages"},
    BaseCheckpointSaver: {"config_specs", "serde"},
    BaseChatStore: {"model_config"},  # Pydantic's
    AsyncDBChatStore: {"model_config"},
    Session: {"session_id", "session_settings"},
    SessionABC: {"session_id", "session_settings"},
    BaseSessionService: set(),
    ConversationStore: set(),
}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_a_class_that_we_derive_from_has_no_attribute_that_we_do_not_know(kind: type) -> None:
    assert attributes(kind) == KNOWN[kind]


def test_attributes_of_every_kind_are_noticed() -> None:
    class Grown:
        declared: int
        given = 1
        _private = 2

        @property
        def computed(self) -> int:
            return 3

        @cached_property
        def kept(self) -> int:
            return 4

        def method(self) -> None: ...

        @classmethod
        def of_the_class(cls) -> None: ...

        @staticmethod
        def of_none() -> None: ...

    assert attributes(Grown) == {"declared", "given", "computed", "kept"}


def test_the_command_needs_no_framework() -> None:
    """It shows and imports what adapters stored, also where their frameworks are not installed."""
    script = f"""
import importlib, pkgutil, sys
for name in {FRAMEWORKS!r}:
    sys.modules[name] = None
import everturn.cli
for found in pkgutil.walk_packages(everturn.cli.__path__, "everturn.cli."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
