"""The sound store in every shape that the kit knows, each a factory to point it at. None needs a framework."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.kit.sound.core import Core, Receipt, encoded

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


class History:
    """Agent Framework's HistoryProvider, awaited."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def save_messages(self, session_id: str, messages: Sequence[Any], *, state: Any = None) -> None:
        await asyncio.to_thread(self.core.append, session_id, [dict(message) for message in messages])

    async def get_messages(self, session_id: str, *, state: Any = None) -> list[Any]:
        return await asyncio.to_thread(self.core.read, session_id)


class Workflows:
    """Agent Framework's CheckpointStorage, awaited: a save that is told when it is late."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def save(self, checkpoint: Any) -> str:
        await asyncio.to_thread(self.store, checkpoint.workflow_name, dict(checkpoint))
        return str(checkpoint.checkpoint_id)

    def store(self, workflow: str, row: Any) -> None:
        with self.core.change() as db:
            self.core.begin(db, workflow)
            latest = self.core.latest(db, workflow)
            if (latest["checkpoint_id"] if latest else None) != row["previous_checkpoint_id"]:
                raise ValueError("there is a newer checkpoint than the one this was made from")
            self.core.put(db, workflow, [row])
            self.core.touch(db, workflow)

    async def load(self, checkpoint_id: str) -> Any:
        with self.core.view() as db:
            sql = "SELECT body FROM messages WHERE json_extract(body, '$.checkpoint_id') = ?"
            row = db.execute(sql, (checkpoint_id,)).fetchone()
        if row is None:
            raise KeyError(f"there is no checkpoint {checkpoint_id!r}")
        return SimpleNamespace(**json.loads(row[0]))

    async def get_latest(self, *, workflow_name: str) -> Any:
        with self.core.view() as db:
            latest = self.core.latest(db, workflow_name)
        return None if latest is None else SimpleNamespace(**latest)


class Strands:
    """Strands' SessionRepository: a number that is taken is refused."""

    def __init__(self, core: Core) -> None:
        self.core = core
        with core.change() as db:
            columns = "session TEXT, agent TEXT, number INTEGER, body TEXT, PRIMARY KEY (session, agent, number)"
            db.execute(f"CREATE TABLE IF NOT EXISTS numbered ({columns})")

    def create_session(self, session: Any) -> Any:
        self.core.append(json.dumps([session.session_id]), [session.session_id])
        return session

    def read_session(self, session_id: str) -> Any:
        return self.core.read(json.dumps([session_id])) or None

    def delete_session(self, session_id: str) -> None:
        with self.core.change() as db:
            db.execute("DELETE FROM messages WHERE session = ?", (json.dumps([session_id]),))
            db.execute("DELETE FROM numbered WHERE session = ?", (session_id,))

    def create_agent(self, session_id: str, session_agent: Any) -> None:
        self.core.append(json.dumps([session_id]), [dict(session_agent)])

    def read_agent(self, session_id: str, agent_id: str) -> Any:
        return next((row for row in self.core.read(json.dumps([session_id]))[1:] if row["agent_id"] == agent_id), None)

    insert = "INSERT INTO numbered VALUES (?, ?, ?, ?)"

    def create_message(self, session_id: str, agent_id: str, session_message: Any) -> None:
        with self.core.change() as db:
            row = (session_id, agent_id, session_message.message_id, encoded(session_message.message))
            db.execute(self.insert, row)

    def list_messages(self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0) -> list[Any]:
        sql = "SELECT number, body FROM numbered WHERE session = ? AND agent = ? ORDER BY number LIMIT ? OFFSET ?"
        with self.core.view() as db:
            rows = db.execute(sql, (session_id, agent_id, -1 if limit is None else limit, offset)).fetchall()
        return [SimpleNamespace(message_id=number, message=json.loads(body)) for number, body in rows]


class Items:
    """LangGraph's BaseStore: a row for each item."""

    def __init__(self, core: Core) -> None:
        self.core = core
        with core.change() as db:
            columns = "namespace TEXT, key TEXT, value TEXT, expires_at REAL, PRIMARY KEY (namespace, key)"
            db.execute(f"CREATE TABLE IF NOT EXISTS items ({columns})")

    def put(self, namespace: tuple[str, ...], key: str, value: Any) -> None:
        expires_at = None if self.core.ttl is None else time.time() + self.core.ttl
        with self.core.change() as db:
            row = (encoded(namespace), key, encoded(value), expires_at)
            db.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)", row)

    def get(self, namespace: tuple[str, ...], key: str) -> Any:
        found = self.found("WHERE namespace = ? AND key = ?", encoded(namespace), key)
        return found[0] if found else None

    def search(self, namespace_prefix: tuple[str, ...], /, *, limit: int = 10, offset: int = 0) -> list[Any]:
        found = self.found("ORDER BY rowid")
        return [one for one in found if self.is_below(one.namespace, namespace_prefix)][offset : offset + limit]

    def is_below(self, namespace: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
        return namespace[: len(prefix)] == prefix

    def found(self, condition: str, *values: str) -> list[Any]:
        with self.core.view() as db:
            rows = db.execute(f"SELECT namespace, key, value, expires_at FROM items {condition}", values).fetchall()
        return [
            SimpleNamespace(namespace=tuple(json.loads(namespace)), key=key, value=json.loads(value))
            for namespace, key, value, expires_at in rows
            if not self.is_over(expires_at)
        ]

    def is_over(self, expires_at: float | None) -> bool:
        return expires_at is not None and expires_at <= time.time()

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        with self.core.change() as db:
            db.execute("DELETE FROM items WHERE namespace = ? AND key = ?", (encoded(namespace), key))


# --- factories -------------------------------------------------------------------------------------------------------


def made(core: type[Core] = Core, shape: Callable[[Core], Any] = Lists) -> Any:
    """The factory of a shape over a store: what a mutant's module ends with."""

    def factory(where: Path, ttl: float | None = None, timeout: float | None = None) -> Any:
        return shape(core(where, ttl, timeout))

    factory.share_threads = True  # type: ignore[attr-defined]
    return factory


def made_without_ttl(core: type[Core] = Core, *, shape: Callable[[Core], Any]) -> Any:
    """Make the factory of a shape that has no expiry."""

    def factory(where: Path, timeout: float | None = None) -> Any:
        return shape(core(where, None, timeout))

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
history = made(shape=History)
workflows = made(shape=Workflows)
strands = made_without_ttl(shape=Strands)
items = made(shape=Items)
