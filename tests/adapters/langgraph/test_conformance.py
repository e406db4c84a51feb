"""LangGraph's own conformance suite: all of its checks, on every backend and face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.conftest import StoreUnderTest

CHECKS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@pytest.mark.parametrize("face", ["blocking", "async"])
@pytest.mark.parametrize("on_conflict", ["raise", "last_wins"])
def test_all_checks_of_all_capabilities_pass(backend: StoreUnderTest, face: str, on_conflict: Any) -> None:
    @checkpointer_test(name="EverturnSaver")
    async def ours() -> AsyncIterator[EverturnSaver]:
        if face == "blocking":
            with backend.open() as store:
                yield EverturnSaver(store, on_conflict=on_conflict)
        else:
            async with backend.open_async() as store:
                yield EverturnSaver(store, on_conflict=on_conflict)

    report = asyncio.run(validate(ours))
    # The suite calls a saver that overrides nothing FULL: count what it did, by name.
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert {name: result.tests_passed for name, result in report.results.items()} == CHECKS
    assert sum(CHECKS.values()) == 81
