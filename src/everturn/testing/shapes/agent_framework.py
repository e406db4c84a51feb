"""The shapes of Microsoft Agent Framework: `HistoryProvider`, which appends, and `CheckpointStorage`, which stores
whole states of a workflow.

The framework is used only to make its messages and checkpoints, and only if the target has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from everturn.testing.shapes.base import DictMessage, ReadMessage, SentMessage, Shape, read_message
from everturn.testing.shapes.native_messages import agent_framework_messages
from everturn.testing.shapes.read_then_put import ReadThenPutShape


class HistoryProviderShape(Shape):
    """`save_messages(session_id, messages)` and `get_messages(session_id)`, with the session's `state` if taken."""

    name = "Agent Framework HistoryProvider"
    calls = (
        "save_messages(session_id, [message, ...], state=...)",
        "get_messages(session_id, state=...)",
    )
    appends_to = ("save_messages",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._states: dict[str, dict[str, Any]] = {}  # by session: the part of AgentSession.state that is the store's

    @classmethod
    def fits(cls, example: Any) -> bool:
        return callable(getattr(example, "save_messages", None)) and callable(getattr(example, "get_messages", None))

    def message(self, sent: SentMessage) -> Any:
        if (framework := self.framework("agent_framework")) is None:
            return DictMessage(role=sent.role, content=sent.content)
        return framework.Message(sent.role, [sent.content])

    def natives(self) -> Mapping[str, list[Any]]:
        framework = self.framework("agent_framework")
        return {} if framework is None else agent_framework_messages(framework)

    def _state(self, session: str, method: str) -> dict[str, Any]:
        return {"state": self._states.setdefault(session, {})} if self._takes(method, "state") else {}

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        state = self._state(session, "save_messages")
        await self.call(session, "save_messages", self.made(messages), **state, **options)

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "get_messages", **self._state(session, "get_messages"))

    async def read(self, session: str) -> list[ReadMessage]:
        return [_read(raw) for raw in await self.read_raw(session)]


def _read(raw: Any) -> ReadMessage:
    """Read a message: one of the framework has `contents`, of which the kit writes one, a text."""
    if not hasattr(raw, "contents"):
        return read_message(raw)
    return ReadMessage(str(raw.role), "".join(getattr(content, "text", None) or "" for content in raw.contents))


class CheckpointStorageShape(ReadThenPutShape):
    """`save(checkpoint)`, `load(checkpoint_id)`, `get_latest(workflow_name=)`. A session is the name of a workflow.

    The kit does what a workflow does after each step: it saves the whole state, as the child of the latest checkpoint.
    """

    name = "Agent Framework CheckpointStorage"
    calls = (
        "save(checkpoint)",
        "get_latest(workflow_name=)",
    )
    has_fields = True
    appends_to = ("save",)
    clears_with = ()

    @classmethod
    def fits(cls, example: Any) -> bool:
        return all(callable(getattr(example, name, None)) for name in ("save", "load", "get_latest"))

    def more(self) -> set[str]:
        return super().more() | {"checkpoints", "whole_states"}

    def message(self, sent: SentMessage) -> Any:
        return {"role": sent.role, "content": sent.content, **sent.fields}

    async def get(self, session: str) -> Any:
        return await self.call(None, "get_latest", workflow_name=session)

    async def put(self, session: str, messages: Sequence[SentMessage], latest: Any, **options: Any) -> str:
        """Save the extended state as the child of the checkpoint that was read. Returns the id of the new one."""
        said = [] if latest is None else latest.state.get("messages", [])
        fields = {
            "workflow_name": session,
            "graph_signature_hash": "everturn kit",
            "previous_checkpoint_id": None if latest is None else latest.checkpoint_id,
            "state": {"messages": [*said, *self.made(messages)]},
            "iteration_count": 0 if latest is None else latest.iteration_count + 1,
        }
        checkpoint = _checkpoint(fields)
        saved = await self.call(None, "save", checkpoint, **options)
        return str(saved or checkpoint.checkpoint_id)

    async def read_raw(self, session: str) -> Any:
        latest = await self.get(session)
        return [] if latest is None else latest.state.get("messages", [])

    async def append_with_parent(self, session: str, messages: Sequence[SentMessage]) -> tuple[str, str | None]:
        """Append. Returns the id of the new checkpoint and of its parent."""
        latest = await self.get(session)
        return await self.put(session, messages, latest), None if latest is None else str(latest.checkpoint_id)

    async def checkpoint(self, session: str, checkpoint_id: str) -> tuple[list[ReadMessage], str | None] | None:  # noqa: ARG002
        """Load the messages of the checkpoint with this id, and its parent's id. None if it cannot be loaded."""
        try:
            found = await self.call(None, "load", checkpoint_id)
        except Exception:  # noqa: BLE001 - the interface says: raises if there is none
            return None
        messages = [read_message(raw) for raw in found.state.get("messages", [])]
        return messages, found.previous_checkpoint_id


def _checkpoint(fields: dict[str, Any]) -> Any:
    """Make a checkpoint: the framework's if it is imported here (a storage need not derive from it), or a plain one."""
    if (framework := sys.modules.get("agent_framework")) is not None:
        return framework.WorkflowCheckpoint(**fields)
    return DictMessage(
        checkpoint_id=str(uuid4()),
        timestamp=datetime.now(UTC).isoformat(),
        messages={},
        pending_request_info_events={},
        metadata={},
        version="1.0",
        **fields,
    )
