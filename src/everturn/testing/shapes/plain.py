"""Shapes without a framework: lists of messages, pairs of strings, one message at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everturn.testing.shapes.base import ReadMessage, SentMessage, Shape, read_message


class ListShape(Shape):
    """`add_messages(session_id, messages)` and `get_history(session_id)`: everturn's own, and its relatives."""

    name = "add_messages/get_history"
    calls = (
        'add_messages(session_id, [{"role": ..., "content": ...}, ...])',
        "get_history(session_id)",
    )
    has_fields = True
    appends_to = ("add_messages",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        return _callable(example, "add_messages") and _callable(example, "get_history")

    def more(self) -> set[str]:
        found = {"latest"} if self._takes("get_history", "limit") else set()
        if self._has("replace") and self._takes("replace", "entries"):
            found.add("replace")
        if self._takes("trim", "keep_system"):
            found.add("trim_keeps_prompts")
        if self._has("add_tool_call") and self._has("get_tool_calls"):
            found.add("tool_calls")
        if self._has("add_summary") and self._has("search_summaries"):
            found.add("summaries")
        if self._has("verify"):
            found.add("verify")
        return found

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        return version_of(await self.call(session, "add_messages", self.made(messages), **options))

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "get_history")

    async def latest(self, session: str, most: int) -> list[ReadMessage]:
        return [read_message(raw) for raw in await self.call(session, "get_history", limit=most)]

    async def prompt(self, session: str) -> list[ReadMessage]:
        if not self._has("get_context"):
            return await self.read(session)
        return [read_message(raw) for raw in (await self.call(session, "get_context")).messages]

    async def replace(self, session: str, messages: Sequence[SentMessage]) -> None:
        await self.call(session, "replace", self.made(messages))

    async def add_tool_call(self, session: str, name: str) -> None:
        from everturn.model import ToolCall

        await self.call(session, "add_tool_call", ToolCall(name, {}))

    async def tool_calls(self, session: str) -> list[str]:
        return [record.name for record in await self.call(session, "get_tool_calls")]

    async def add_summary(self, session: str, text: str) -> None:
        from everturn.model import Summary

        await self.call(session, "add_summary", Summary(text, [1.0, 0.0], (1, 1)))

    async def summaries(self, session: str) -> list[str]:
        return [hit.summary.text for hit in await self.call(session, "search_summaries", [1.0, 0.0])]

    async def verify(self) -> bool:
        return bool((await self.call(None, "verify")).ok)


class PairShape(Shape):
    """`save_context(session_id, human, ai)` and `load_memory(session_id)`, a list of {"human", "ai"}."""

    name = "save_context/load_memory"
    calls = (
        "save_context(session_id, human, ai)",
        "load_memory(session_id)",
    )
    unit = "pair"
    has_roles = False
    appends_to = ("save_context",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        return _callable(example, "save_context") and _callable(example, "load_memory")

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        human, ai = messages
        return version_of(await self.call(session, "save_context", human.content, ai.content, **options))

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "load_memory")

    async def read(self, session: str) -> list[ReadMessage]:
        history: list[ReadMessage] = []
        for pair in await self.read_raw(session):
            if not isinstance(pair, Mapping):
                raise TypeError(f'load_memory gives {{"human", "ai"}}, not {type(pair).__name__}')
            history += (ReadMessage(role, pair[name]) for role, name in (("user", "human"), ("assistant", "ai")))
        return history


class SingleShape(Shape):
    """`add_message(session_id, role, content)` and `get_conversation(session_id)`, dicts or (role, content)."""

    name = "add_message/get_conversation"
    calls = (
        "add_message(session_id, role, content)",
        "get_conversation(session_id)",
    )
    unit = "message"
    appends_to = ("add_message",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        return _callable(example, "add_message") and _callable(example, "get_conversation")

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        (sent,) = messages
        return version_of(await self.call(session, "add_message", sent.role, sent.content, **options))

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "get_conversation")


def version_of(receipt: Any) -> int | None:
    """Return the version in a receipt; None if it has none."""
    version = getattr(receipt, "version", None)
    return version if isinstance(version, int) else None


def _callable(example: Any, method: str) -> bool:
    return callable(getattr(example, method, None)) or callable(getattr(example, f"a{method}", None))
