"""The shape of LangGraph's `BaseCheckpointSaver`, which stores whole states: an append is read, extend, put.

The kit does what a compiled graph does. langgraph itself is not imported.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from os import getpid, urandom
from typing import Any, ClassVar
from uuid import UUID

from everturn.testing.shapes.base import ReadMessage, SentMessage, Shape, await_if_needed, read_message
from everturn.testing.shapes.native_messages import plain
from everturn.testing.shapes.read_then_put import ReadThenPutShape

_order = count()  # breaks ties between ids made in one tick of the clock


class LangGraphShape(ReadThenPutShape):
    """`get_tuple`, `put`, `delete_thread`, or their awaited twins."""

    name = "LangGraph BaseCheckpointSaver"
    calls = (
        "put(config, checkpoint, metadata, new_versions)",
        "get_tuple(config)",
    )
    has_fields = True
    appends_to = ("put",)
    clears_with = ("delete_thread",)
    optional: ClassVar[Mapping[str, str]] = {
        name: method for name, method in Shape.optional.items() if "snapshot" in method
    }

    @classmethod
    def fits(cls, example: Any) -> bool:
        return any(
            callable(getattr(example, get, None)) and callable(getattr(example, put, None))
            for get, put in (("get_tuple", "put"), ("aget_tuple", "aput"))
        )

    def more(self) -> set[str]:
        found = super().more() | {"checkpoints", "whole_states", "subgraphs"}
        found |= {"pending_writes"} if self._has("put_writes") else set()
        return found | ({"listing"} if all(self._takes("list", name) for name in ("before", "limit")) else set())

    def message(self, sent: SentMessage) -> Any:
        return {"role": sent.role, "content": sent.content, **sent.fields}

    async def get(self, session: str, checkpoint_id: str | None = None, namespace: str = "") -> Any:
        """Get a checkpoint's tuple: the latest, or the one of this id. None if there is none."""
        return await self.call(None, "get_tuple", _config(session, checkpoint_id, namespace))

    async def put(
        self, session: str, messages: Sequence[SentMessage], latest: Any, *, namespace: str = "", **options: Any
    ) -> str:
        """Extend the state that was read, and put it as that one's child. Returns the new checkpoint's id."""
        found = latest.checkpoint if latest is not None else {}
        versions = dict(found.get("channel_versions", {}))
        saver = await self._source(None)
        following = getattr(saver, "get_next_version", lambda current, _: (current or 0) + 1)
        versions["messages"] = following(versions.get("messages"), None)
        values = dict(found.get("channel_values", {}))
        values["messages"] = [*values.get("messages", []), *self.made(messages)]
        checkpoint = {
            "v": 4,
            "id": new_id(),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": dict(found.get("versions_seen", {})),
            "updated_channels": ["messages"],
        }
        step = latest.metadata.get("step", 0) + 1 if latest is not None else 0
        config = latest.config if latest is not None else _config(session, None, namespace)
        metadata: dict[str, Any] = {"source": "loop", "step": step, "parents": {}}
        put = await self.call(None, "put", config, checkpoint, metadata, {"messages": versions["messages"]}, **options)
        returned = put["configurable"].get("checkpoint_id") if isinstance(put, Mapping) else None
        return str(returned or checkpoint["id"])

    async def read_raw(self, session: str) -> Any:
        found = await self.get(session)
        return [] if found is None else found.checkpoint["channel_values"].get("messages", [])

    async def clear(self, session: str) -> None:
        await self.call(None, "delete_thread", session)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    async def append_with_parent(self, session: str, messages: Sequence[SentMessage]) -> tuple[str, str | None]:
        """Append. Returns the id of the new checkpoint and of its parent."""
        latest = await self.get(session)
        parent = latest.config["configurable"].get("checkpoint_id") if latest is not None else None
        return await self.put(session, messages, latest), parent

    async def append_to(self, session: str, checkpoint_id: str, messages: Sequence[SentMessage]) -> str:
        """Append to the checkpoint of this id, as a graph does that goes on from the past. Returns the new one's id."""
        return await self.put(session, messages, await self.get(session, checkpoint_id))

    async def put_parts(self, session: str) -> Any:
        """Put a checkpoint that has more than messages: several channels, versions seen, metadata. Returns it."""
        saver = await self._source(None)
        following = getattr(saver, "get_next_version", lambda current, _: (current or 0) + 1)
        values = {
            "messages": [{"role": "user", "content": "where is it?"}],
            "plan": {"steps": ["look", "answer"], "done": False, "score": 0.1},
            "count": 3,
            "notes": ["a", None, ""],
            "branch:to:agent": None,
        }
        versions = {name: following(None, None) for name in values}
        checkpoint = {
            "v": 4,
            "id": new_id(),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"__input__": {}, "agent": {"messages": versions["messages"]}},
            "updated_channels": sorted(values),
        }
        metadata = {"source": "update", "step": 2, "parents": {"sub": "id-1"}, "user": "ada", "score": 0.5}
        await self.call(None, "put", _config(session), checkpoint, metadata, versions)
        return plain({"checkpoint": checkpoint, "metadata": metadata})

    async def parts(self, session: str) -> Any:
        """Get all of the latest checkpoint and its metadata."""
        found = await self.get(session)
        return plain({"checkpoint": found.checkpoint, "metadata": found.metadata})

    async def listed(self, session: str, before: str | None = None, limit: int | None = None) -> list[str]:
        """List the ids of the thread's checkpoints, as the saver does, perhaps before one of them."""
        saver = await self._source(None)
        bound = None if before is None else _config(session, before)
        found = getattr(saver, self._named("list"))(_config(session), before=bound, limit=limit)
        if hasattr(found, "__aiter__"):
            rows = [row async for row in found]
        else:
            rows = list(await await_if_needed(found))
        return [row.config["configurable"]["checkpoint_id"] for row in rows]

    # --- subgraphs and pending writes --------------------------------------------------------------------------------

    async def append_in(self, session: str, namespace: str, messages: Sequence[SentMessage]) -> str:
        """Append in a namespace of the thread, as a subgraph does."""
        return await self.put(session, messages, await self.get(session, None, namespace), namespace=namespace)

    async def read_in(self, session: str, namespace: str) -> list[ReadMessage]:
        """Read the latest state of a namespace of the thread."""
        return messages_in(await self.get(session, None, namespace))

    async def put_writes(self, session: str, task: str, values: Sequence[str]) -> None:
        """Store what a task of the latest step wrote, before the step is over."""
        latest = await self.get(session)
        await self.call(None, "put_writes", latest.config, [("messages", value) for value in values], task)

    async def pending_writes(self, session: str) -> list[tuple[str, str]]:
        """Read what tasks of the latest step wrote: (task, value), in the order of the store."""
        latest = await self.get(session)
        found = getattr(latest, "pending_writes", None) or ()
        return [(task, value) for task, channel, value in found if channel == "messages"]

    async def checkpoint(self, session: str, checkpoint_id: str) -> tuple[list[ReadMessage], str | None] | None:
        """Get the messages of the checkpoint with this id, and its parent's id. None if it cannot be retrieved."""
        found = await self.get(session, checkpoint_id)
        if found is None:
            return None
        parent = getattr(found, "parent_config", None)
        return messages_in(found), parent["configurable"].get("checkpoint_id") if parent else None


def messages_in(found: Any) -> list[ReadMessage]:
    return (
        [] if found is None else [read_message(raw) for raw in found.checkpoint["channel_values"].get("messages", [])]
    )


def _config(session: str, checkpoint_id: str | None = None, namespace: str = "") -> dict[str, Any]:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": session, "checkpoint_ns": namespace, **named}}


def new_id() -> str:
    """Make a UUID of version 6: later ones sort later, because savers look for the newest id."""
    ticks = time.time_ns() // 100 + 0x01B21DD213814000 + next(_order)
    high = (ticks >> 12 & 0xFFFFFFFFFFFF) << 80 | 0x6000 << 64 | (ticks & 0x0FFF) << 64
    low = 0x8000 << 48 | (getpid() & 0x3FFF) << 48 | int.from_bytes(urandom(6))
    return str(UUID(int=high | low))
