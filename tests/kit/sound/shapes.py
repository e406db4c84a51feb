"""The sound store in every shape that the kit knows, each a factory to point it at. None needs a framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.kit.sound.core import Core, Receipt

C = TypeVar("C", bound=Core)


# --- shapes of our own -----------------------------------------------------------------------------------------------


class Lists:
    """add_messages / get_history, with everything that can be offered beside it."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def add_messages(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        key: str | None = None,
        expected_version: int | None = None,
    ) -> Receipt:
        made = [dict(message) for message in messages]
        return self.core.append(session_id, made, key=key, expected_version=expected_version)

    def get_history(self, session_id: str, limit: int | None = None) -> list[Any]:
        return self.core.read(session_id, limit)

    def replace(self, session_id: str, entries: Sequence[Any]) -> None:
        self.core.replace(session_id, [dict(message) for message in entries])

    def trim(self, session_id: str, max_messages: int) -> None:
        self.core.trim(session_id, max_messages)

    def clear(self, session_id: str) -> None:
        self.core.clear(session_id)

    def clear_all(self) -> None:
        self.core.clear_all()

    def save_snapshot(self, session_id: str) -> str:
        return self.core.save_snapshot(session_id)

    def rollback_to_snapshot(self, session_id: str, snapshot: str) -> None:
        self.core.rollback(session_id, snapshot)

    def delete_snapshot(self, session_id: str, snapshot: str) -> None:
        self.core.delete_snapshot(session_id, snapshot)

    def list_snapshots(self, session_id: str) -> list[str]:
        return self.core.list_snapshots(session_id)

    def undo(self, session_id: str) -> None:
        self.core.undo(session_id)


class Pairs:
    """save_context / load_memory, with an awaited twin."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def save_context(self, session_id: str, human: str, ai: str) -> None:
        self.core.append(session_id, [{"human": human, "ai": ai}])

    async def asave_context(self, session_id: str, human: str, ai: str) -> None:
        self.save_context(session_id, human, ai)

    def load_memory(self, session_id: str) -> list[Any]:
        return self.core.read(session_id)

    def clear(self, session_id: str) -> None:
        self.core.clear(session_id)


class Singles:
    """add_message / get_conversation, with snapshots."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def add_message(self, session_id: str, role: str, content: str) -> None:
        self.core.append(session_id, [[role, content]])

    def get_conversation(self, session_id: str) -> list[Any]:
        return [tuple(pair) for pair in self.core.read(session_id)]

    def save_snapshot(self, session_id: str) -> str:
        return self.core.save_snapshot(session_id)

    def rollback_to_snapshot(self, session_id: str, snapshot_id: str) -> None:
        self.core.rollback(session_id, snapshot_id)

    def clear(self, session_id: str) -> None:
        self.core.clear(session_id)


# --- shapes of frameworks --------------------------------------------------------------------------------------------


class LangChain:
    """BaseChatMessageHistory: one object per session."""

    def __init__(self, core: Core, session_id: str) -> None:
        self.core = core
        self.session_id = session_id

    def add_messages(self, messages: Sequence[Any]) -> None:
        self.core.append(self.session_id, [dict(message) for message in messages])

    @property
    def messages(self) -> list[Any]:
        return self.core.read(self.session_id)

    def clear(self) -> None:
        self.core.clear(self.session_id)


class Agents:
    """OpenAI Agents' Session: one object per session, awaited."""

    def __init__(self, core: Core, session_id: str) -> None:
        self.core = core
        self.session_id = session_id

    async def add_items(self, items: Sequence[Any]) -> None:
        await asyncio.to_thread(self.core.append, self.session_id, list(items))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await asyncio.to_thread(self.core.read, self.session_id, limit)

    async def pop_item(self) -> Any:
        return await asyncio.to_thread(self.core.pop, self.session_id)

    async def clear_session(self) -> None:
        await asyncio.to_thread(self.core.clear, self.session_id)


class LlamaIndex:
    """BaseChatStore."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def add_message(self, key: str, message: Any) -> None:
        self.core.append(key, [dict(message)])

    def get_messages(self, key: str) -> list[Any]:
        return self.core.read(key)

    def set_messages(self, key: str, messages: Sequence[Any]) -> None:
        self.core.replace(key, [dict(message) for message in messages])

    def delete_messages(self, key: str) -> None:
        self.core.clear(key)

    def delete_message(self, key: str, idx: int) -> Any:
        return self.core.delete(key, idx)

    def delete_last_message(self, key: str) -> Any:
        return self.core.pop(key)


class Adk:
    """BaseSessionService, awaited."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def session(self, app_name: str, user_id: str, session_id: str) -> str:
        """The core's session. No two names of an application, a user and a session make one name."""
        return json.dumps([app_name, user_id, session_id])

    async def create_session(self, *, app_name: str, user_id: str, session_id: str) -> Any:
        return SimpleNamespace(id=session_id, app_name=app_name, user_id=user_id, events=[], state={})

    async def get_session(self, *, app_name: str, user_id: str, session_id: str) -> Any:
        found = self.core.read(self.session(app_name, user_id, session_id))
        made = await self.create_session(app_name=app_name, user_id=user_id, session_id=session_id)
        for author, text, changes in found:
            made.events.append(_event(author, text))
            made.state |= changes
        return made if found else None

    async def append_event(self, session: Any, event: Any) -> Any:
        actions = getattr(event, "actions", None)
        changes = {} if actions is None else actions.state_delta
        row = [event.author, event.content.parts[0].text, changes]
        self.core.append(self.session(session.app_name, session.user_id, session.id), [row])
        return event

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self.core.clear(self.session(app_name, user_id, session_id))


def _event(author: str, text: str) -> Any:
    return SimpleNamespace(author=author, content=SimpleNamespace(parts=[SimpleNamespace(text=text)]))


class LangGraph:
    """BaseCheckpointSaver: the whole state at each step, and a put that is told when it is late."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def get_next_version(self, current: int | None, _channel: Any) -> int:
        return (current or 0) + 1

    def session(self, config: Any) -> str:
        """The core's session of a thread and namespace. No two of them make one name."""
        named = config["configurable"]
        return json.dumps([named["thread_id"], named.get("checkpoint_ns", "")])

    def get_tuple(self, config: Any) -> Any:
        session, checkpoint_id = self.session(config), config["configurable"].get("checkpoint_id")
        if checkpoint_id is None:
            with self.core.view() as db:
                latest = self.core.latest(db, session)
            found = [latest] if latest else []
        else:
            found = [row for row in self.core.read(session) if row["checkpoint"]["id"] == checkpoint_id]
        return self.tuple_of(config, found[0]) if found else None

    def tuple_of(self, config: Any, row: Any) -> Any:
        written = self.core.read(self.writes_of(config, row["checkpoint"]["id"]))
        unique = {(task, number): (task, channel, value) for task, number, channel, value in written}
        return _tuple(config["configurable"], row, [unique[name] for name in sorted(unique)])

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        named = config["configurable"]
        row = {"checkpoint": checkpoint, "metadata": metadata, "parent": named.get("checkpoint_id")}
        self.store(self.session(config), row, named.get("checkpoint_id"))
        return {"configurable": {**named, "checkpoint_id": checkpoint["id"]}}

    def store(self, thread: str, row: Any, parent: str | None) -> None:
        with self.core.change() as db:
            self.core.begin(db, thread)
            latest = self.core.latest(db, thread)
            if (latest["checkpoint"]["id"] if latest else None) != parent:
                raise ValueError("there is a newer checkpoint than the one this was made from")
            self.core.put(db, thread, [row])
            self.core.touch(db, thread)

    def writes_of(self, config: Any, checkpoint_id: str) -> str:
        return json.dumps([*json.loads(self.session(config)), checkpoint_id])

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        rows = [[task_id, number, channel, value] for number, (channel, value) in enumerate(writes)]
        self.core.append(self.writes_of(config, config["configurable"]["checkpoint_id"]), rows)

    def delete_thread(self, thread_id: str) -> None:
        with self.core.view() as db:
            names = [name for (name,) in db.execute("SELECT session FROM sessions").fetchall()]
        for name in names:
            if json.loads(name)[0] == thread_id:
                self.core.clear(name)


def _tuple(named: Any, row: Any, writes: list[Any]) -> Any:
    def config(checkpoint_id: str) -> Any:
        return {"configurable": {**named, "checkpoint_id": checkpoint_id}}

    return SimpleNamespace(
        pending_writes=writes,
        config=config(row["checkpoint"]["id"]),
        checkpoint=row["checkpoint"],
        metadata=row["metadata"],
        parent_config=config(row["parent"]) if row["parent"] else None,
    )


# --- factories -------------------------------------------------------------------------------------------------------


def made(core: type[Core] = Core, shape: Callable[[Core], Any] = Lists) -> Any:
    """The factory of a shape over a store: what a mutant's module ends with."""

    def factory(where: Path, ttl: float | None = None, timeout: float | None = None) -> Any:
        return shape(core(where, ttl, timeout))

    factory.share_threads = True  # type: ignore[attr-defined]
    return factory


def made_per_session(core: type[Core], shape: Callable[[Core, str], Any]) -> Any:
    """Make the factory of a shape that has one object per session."""

    def factory(where: Path, session_id: str) -> Any:
        return shape(core(where), session_id)

    factory.share_threads = True  # type: ignore[attr-defined]
    return factory


lists = made()
pairs = made(shape=Pairs)
singles = made(shape=Singles)
langchain = made_per_session(Core, LangChain)
agents = made_per_session(Core, Agents)
llamaindex = made(shape=LlamaIndex)
adk = made(shape=Adk)
langgraph = made(shape=LangGraph)
