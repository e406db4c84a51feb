"""Real graphs, run over everturn: they see what they see over LangGraph's own saver in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.conftest import StoreUnderTest, WatchedSaver
from tests.adapters.langgraph.scenarios import SCENES


@pytest.mark.parametrize("name", list(SCENES))
def test_a_graph_sees_what_it_would_see_in_memory(backend: StoreUnderTest, name: str) -> None:
    expected = SCENES[name](InMemorySaver())
    with backend.open() as store:
        assert SCENES[name](EverturnSaver(store)) == expected
        assert store.verify().ok


@pytest.mark.parametrize("name", list(SCENES))
def test_a_graph_sees_the_same_where_nothing_is_remembered(store: Any, name: str) -> None:
    class Forgetful(WatchedSaver):
        async def watch(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
            self._cache.__init__()  # type: ignore[misc]  # as if each call came from another process
            return await call

    assert SCENES[name](Forgetful(store)) == SCENES[name](InMemorySaver())
