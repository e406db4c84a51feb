"""Adapters over DynamoDB: a few clauses of the contract, faults among them. `make deep` has all (test_contract.py)."""

from __future__ import annotations

import importlib

import pytest

from tests.adapters.checking import BACKENDS, hold
from tests.tiers import first

ADAPTERS = ("langgraph", "openai_agents", "langchain", "llama_index", "google_adk", "pydantic_ai", "fastapi")
CLAUSES = frozenset({"store-and-retrieve", "reply-swallowed", "killed-in-append"})


@pytest.mark.parametrize("adapter", first(1, ADAPTERS))
def test_a_few_clauses_hold(adapter: str) -> None:
    lacks = importlib.import_module(f"tests.adapters.{adapter}.test_contract").LACKS
    hold(f"{adapter}.target:on_dynamodb", lacks=lacks | BACKENDS["dynamodb"], clauses=CLAUSES)
