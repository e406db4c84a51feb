"""Shapes are recognised by what can be called, and all become the same few operations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everturn.backend import drive
from everturn.testing.kit.target import offer_of
from everturn.testing.shapes import ReadMessage, SentMessage, is_awaited, shape_of
from everturn.testing.shapes.base import read_message
from everturn.testing.shapes.langgraph import new_id
from everturn.testing.workers.fake_model import FakeModel
from everturn.testing.workers.instance import LocalInstance, Loop
from tests.kit.sound import memory, shapes

SHAPES = {
    "lists": "add_messages/get_history",
    "pairs": "save_context/load_memory",
    "singles": "add_message/get_conversation",
    "langchain": "LangChain BaseChatMessageHistory",
    "agents": "OpenAI Agents Session",
    "llamaindex": "LlamaIndex BaseChatStore",
    "adk": "Google ADK BaseSessionService",
    "langgraph": "LangGraph BaseCheckpointSaver",
    "history": "Agent Framework HistoryProvider",
    "workflows": "Agent Framework CheckpointStorage",
    "strands": "Strands SessionRepository",
    "items": "LangGraph BaseStore",
}


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, Path], LocalInstance]]:
    monkeypatch.delitem(sys.modules, "agent_framework", raising=False)  # another test of this process imports it
    loop = Loop()
    yield lambda factory, where: LocalInstance(factory, offer_of(factory), where, {}, loop, FakeModel())
    loop.close()


@pytest.mark.parametrize("name", list(SHAPES))
def test_every_shape_stores_and_reads(name: str, instance: Any, tmp_path: Path) -> None:
    store = instance(getattr(shapes, name), tmp_path)
    assert store.describe().shape == SHAPES[name]
    turns = {"turn": 3, "pair": 2, "message": 1}[store.describe().unit]
    said = [SentMessage("user" if number % 2 == 0 else "assistant", f"m{number}") for number in range(turns)]
    store.run(store.shape.append("s", said))
    found = store.run(store.shape.read("s"))
    assert [(one.role, one.content) for one in found] == [(one.role, one.content) for one in said]
    if "clear" in store.describe().operations:
        store.run(store.shape.clear("s"))
        assert store.run(store.shape.read("s")) == []
    store.close()


def test_what_is_callable_is_offered(instance: Any, tmp_path: Path) -> None:
    operations = instance(shapes.lists, tmp_path).describe().operations
    assert operations >= {"key", "expected_version", "undo", "trim", "save_snapshot", "rollback", "replace", "latest"}
    assert "save_snapshot" not in instance(shapes.pairs, tmp_path).describe().operations


def test_half_a_pair_of_snapshot_operations_is_not_offered(instance: Any) -> None:
    class Half(memory.LockedLists):
        def save_snapshot(self, session_id: str) -> str:
            return "x"

    def factory(where: Path) -> Half:
        return Half()

    assert "save_snapshot" not in instance(factory, Path()).describe().operations


def test_a_parameter_that_names_the_session_is_no_key(instance: Any, tmp_path: Path) -> None:
    """LlamaIndex calls the session `key`."""
    assert "key" not in instance(shapes.llamaindex, tmp_path).describe().operations


def test_an_awaited_store_is_known_by_its_append() -> None:
    awaited, blocking = memory.AwaitedLists(), memory.LockedLists()
    shape = shape_of(awaited)
    assert shape is not None
    assert is_awaited(awaited, shape)
    assert not is_awaited(blocking, shape)


class NamesSessionsItself(shapes.Adk):
    async def create_session(self, *, app_name: str, user_id: str, session_id: str) -> Any:
        name = session_id.strip() or "generated"
        return await super().create_session(app_name=app_name, user_id=user_id, session_id=name)


def test_an_adk_service_that_gives_a_session_another_name_has_refused_the_first(instance: Any, tmp_path: Path) -> None:
    store = instance(lambda where: NamesSessionsItself(shapes.Core(where)), tmp_path)
    store.run(store.shape.append("s", [SentMessage("user", "x")]))
    for name in ("", "s "):
        with pytest.raises(ValueError, match="named the session"):
            store.run(store.shape.append(name, [SentMessage("user", "x")]))
    store.close()


def test_an_adk_event_is_made_after_its_session_was_read(instance: Any, tmp_path: Path) -> None:
    """As in a run of an agent. An event carries its time: an older one than the session's would go before it."""
    done: list[str] = []

    class Watched(shapes.Adk):
        async def get_session(self, **names: Any) -> Any:
            done.append("read")
            return await super().get_session(**names)

    def factory(where: Path) -> Watched:
        return Watched(shapes.Core(where))

    def message(role: str, content: str) -> Any:
        done.append("made")
        return SimpleNamespace(author=role, content=SimpleNamespace(parts=[SimpleNamespace(text=content)]))

    factory.message = message  # type: ignore[attr-defined]
    store = instance(factory, tmp_path)
    store.run(store.shape.append("s", [SentMessage("user", "x")]))
    assert done == ["read", "made"]
    store.close()


def test_what_has_no_shape_has_none() -> None:
    assert shape_of(object()) is None
    assert shape_of(SimpleNamespace(add_messages=print)) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"role": "user", "content": "hi"},
        ("user", "hi"),
        SimpleNamespace(role="user", content="hi"),
        SimpleNamespace(type="human", content="hi"),
        SimpleNamespace(role=SimpleNamespace(value="user"), content="hi"),
    ],
)
def test_messages_of_every_form_are_read(raw: Any) -> None:
    assert (read_message(raw).role, read_message(raw).content) == ("user", "hi")


def test_fields_are_those_that_a_message_carries() -> None:
    assert read_message({"role": "user", "content": "x", "name": None}) == ReadMessage("user", "x", {"name": None})


def test_what_is_no_message_is_an_error() -> None:
    with pytest.raises(TypeError, match="no role and content"):
        read_message(7)


def test_checkpoint_ids_made_later_sort_later() -> None:
    made = [new_id() for _ in range(500)]
    assert made == sorted(made)
    assert len(set(made)) == 500


def test_an_operation_over_a_blocking_store_never_suspends(instance: Any, tmp_path: Path) -> None:
    store = instance(shapes.lists, tmp_path)
    coroutine: Coroutine[Any, Any, Any] = store.shape.append("s", [SentMessage("user", "x")])
    drive(coroutine)  # raises if it suspends
    with pytest.raises(RuntimeError):
        drive(asyncio.sleep(0))
