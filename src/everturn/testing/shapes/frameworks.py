"""Shapes of frameworks whose stores append: LangChain, OpenAI Agents, LlamaIndex, Google ADK.

A framework is imported only to make its messages, and only if the target derives from it. A store that merely has the
shape gets plain messages, or those that its factory makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Any, ClassVar

from everturn.testing.shapes.base import DictMessage, ReadMessage, SentMessage, Shape, await_if_needed, read_message
from everturn.testing.shapes.native_messages import adk_events, langchain_messages, llama_index_messages, openai_items

_LATEST = 20  # events


class LangChainShape(Shape):
    """LangChain's `BaseChatMessageHistory`: one object per session; `add_messages`, `messages`, `clear`."""

    name = "LangChain BaseChatMessageHistory"
    calls = (
        "add_messages([message, ...])",
        "messages",
    )
    per_session = True
    has_fields = True
    appends_to = ("add_messages",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        # Looked for without being read: `messages` is a property that goes to the disk.
        named = hasattr(type(example), "messages") or "messages" in getattr(example, "__dict__", ())
        reads = named or _has(example, "aget_messages")
        return _has(example, "add_messages") and reads and not _has(example, "get_history")

    def message(self, sent: SentMessage) -> Any:
        if (langchain := self.framework("langchain_core.messages")) is None:
            return DictMessage(
                type={"user": "human", "assistant": "ai"}.get(sent.role, sent.role), content=sent.content
            )
        kinds: dict[str, Any] = {
            "user": langchain.HumanMessage,
            "assistant": langchain.AIMessage,
            "system": langchain.SystemMessage,
            "tool": langchain.ToolMessage,
        }
        fields = {name: value for name, value in sent.fields.items() if name != "metadata"}
        return kinds[sent.role](content=sent.content, **fields)

    def natives(self) -> Mapping[str, list[Any]]:
        langchain = self.framework("langchain_core.messages")
        return {} if langchain is None else langchain_messages(langchain)

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        await self.call(session, "add_messages", self.made(messages), **options)

    async def read_raw(self, session: str) -> Any:
        target = await self._source(session)
        if self.awaited and _has(target, "aget_messages"):
            return await target.aget_messages()
        return target.messages


class AgentsShape(Shape):
    """OpenAI Agents' `Session`: one object per session; `add_items`, `get_items`, `pop_item`, `clear_session`."""

    name = "OpenAI Agents Session"
    calls = (
        'add_items([{"role": ..., "content": ...}, ...])',
        "get_items()",
    )
    per_session = True
    has_fields = True
    appends_to = ("add_items",)
    clears_with = ("clear_session", "clear")
    compacts_with = ("run_compaction",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        return _has(example, "add_items") and _has(example, "get_items")

    def more(self) -> set[str]:
        found = {"latest"} if self._takes("get_items", "limit") else set()
        return found | ({"pop"} if self._has("pop_item") else set())

    def natives(self) -> Mapping[str, list[Any]]:
        return openai_items()

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        await self.call(session, "add_items", self.made(messages), **options)

    def message(self, sent: SentMessage) -> Any:
        return {"role": sent.role, "content": sent.content, **sent.fields}

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "get_items")

    async def latest(self, session: str, most: int) -> list[ReadMessage]:
        return [read_message(raw) for raw in await self.call(session, "get_items", limit=most)]

    async def compact(self, session: str, most: int) -> None:  # noqa: ARG002 - how many are left is the session's own
        await self.call(session, "run_compaction", {"force": True})

    async def pop(self, session: str) -> ReadMessage | None:
        taken = await self.call(session, "pop_item")
        return None if taken is None else read_message(taken)


class LlamaIndexShape(Shape):
    """LlamaIndex's `BaseChatStore`: `add_message(key, message)`, `get_messages`, `set_messages`, `delete_messages`."""

    name = "LlamaIndex BaseChatStore"
    calls = (
        "add_message(key, message)",
        "get_messages(key)",
    )
    unit = "message"
    appends_to = ("add_message", "async_add_message")
    clears_with = ("delete_messages",)

    @classmethod
    def fits(cls, example: Any) -> bool:
        return all(_has(example, name) for name in ("add_message", "get_messages", "set_messages", "delete_messages"))

    def more(self) -> set[str]:
        found = {"replace"} | ({"pop"} if self._has("delete_last_message") else set())
        return found | ({"delete_message"} if self._has("delete_message") else set())

    def _named(self, method: str) -> str:
        # Its awaited twin has a name of its own: async_add_message, beside aget_messages.
        if method == "add_message" and self.awaited and _has(self._example, "async_add_message"):
            return "async_add_message"
        return super()._named(method)

    def message(self, sent: SentMessage) -> Any:
        make = getattr(self.framework("llama_index.core.llms"), "ChatMessage", DictMessage)
        return make(role=sent.role, content=sent.content)

    def natives(self) -> Mapping[str, list[Any]]:
        llama = self.framework("llama_index.core.base.llms.types")
        return {} if llama is None else llama_index_messages(llama)

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        (made,) = self.made(messages)
        await self.call(session, "add_message", made, **options)

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "get_messages")

    async def replace(self, session: str, messages: Sequence[SentMessage]) -> None:
        await self.call(session, "set_messages", self.made(messages))

    async def delete_message(self, session: str, place: int) -> None:
        """Delete the message at this place, counted from 0."""
        await self.call(session, "delete_message", place)

    async def pop(self, session: str) -> ReadMessage | None:
        taken = await self.call(session, "delete_last_message")
        return None if taken is None else read_message(taken)


class AdkShape(Shape):
    """Google ADK's `BaseSessionService`: `create_session`, `get_session`, `append_event`, `delete_session`.

    The session is read before each event, as the documentation asks; the service must refuse a stale one. Only the
    latest events are read then, as by an agent whose `RunConfig` says so: otherwise the kit would be quadratic.
    """

    name = "Google ADK BaseSessionService"
    calls = (
        "append_event(session, event)",
        "get_session(app_name=, user_id=, session_id=)",
    )
    unit = "message"
    has_roles = False
    appends_to = ("append_event",)
    clears_with = ("delete_session",)
    of: ClassVar[dict[str, str]] = {"app_name": "everturn_kit", "user_id": "kit"}

    def more(self) -> set[str]:
        found = {"applications", "state"} | ({"latest"} if self._latest() else set())
        return found | ({"state_scopes"} if self.framework("google.adk.sessions") is not None else set())

    @classmethod
    def fits(cls, example: Any) -> bool:
        return all(_has(example, name) for name in ("create_session", "get_session", "append_event"))

    def message(self, sent: SentMessage) -> Any:
        author = "user" if sent.role == "user" else "model"
        if (events := self.framework("google.adk.events")) is None:
            return DictMessage(author=author, content=DictMessage(parts=[DictMessage(text=sent.content)]), partial=None)
        types = import_module("google.genai.types")
        content = types.Content(role=author, parts=[types.Part(text=sent.content)])
        return events.Event(author=author, content=content)

    def natives(self) -> Mapping[str, list[Any]]:
        events = self.framework("google.adk.events")
        return {} if events is None else adk_events(events, import_module("google.genai.types"))

    async def _session(self, session: str, **options: Any) -> Any:
        service = await self._source(None)
        return service, await await_if_needed(service.get_session(session_id=session, **self.of, **options))

    def _latest(self, most: int = _LATEST) -> dict[str, Any]:
        sessions = self.framework("google.adk.sessions.base_session_service")
        if sessions is None or not self._takes("get_session", "config"):
            return {}
        return {"config": sessions.GetSessionConfig(num_recent_events=most)}

    async def latest(self, session: str, most: int) -> list[ReadMessage]:
        _, found = await self._session(session, **self._latest(most))
        return [] if found is None else [_heard(event) for event in found.events]

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        service, found = await self._session(session, **self._latest())
        if found is None:
            found = await await_if_needed(service.create_session(session_id=session, **self.of))
            if (
                getattr(found, "id", session) != session
            ):  # an empty id asks for a new one, so the service refused the name
                raise ValueError(f"the service named the session {found.id!r}, not {session!r}")
        # Made now, as in a run of an agent: an event carries the time at which it was made.
        (event,) = self.made(messages)
        await await_if_needed(service.append_event(found, event, **options))

    async def read_raw(self, session: str) -> Any:
        _, found = await self._session(session)
        return [] if found is None else found.events

    async def read(self, session: str) -> list[ReadMessage]:
        return [_heard(event) for event in await self.read_raw(session)]

    async def clear(self, session: str) -> None:
        service = await self._source(None)
        await await_if_needed(service.delete_session(session_id=session, **self.of))

    # --- applications and users, state -------------------------------------------------------------------------------

    async def append_as(self, session: str, app: str, user: str, messages: Sequence[SentMessage]) -> None:
        """Append to the session of this name of an application and a user."""
        await self._as(app, user).append(session, messages)

    async def read_as(self, session: str, app: str, user: str) -> list[ReadMessage]:
        """Read the session of this name of an application and a user."""
        return await self._as(app, user).read(session)

    async def clear_as(self, session: str, app: str, user: str) -> None:
        """Delete the session of this name of an application and a user."""
        await self._as(app, user).clear(session)

    async def change_state_as(
        self, session: str, app: str, user: str, messages: Sequence[SentMessage], changes: dict[str, Any]
    ) -> None:
        """Append an event that changes the state, to the session of this name of an application and a user."""
        await self._as(app, user).append_state(session, messages, changes)

    async def state_as(self, session: str, app: str, user: str) -> dict[str, Any] | None:
        """Read the state of the session of this name of an application and a user."""
        return await self._as(app, user).state(session)

    def _as(self, app: str, user: str) -> AdkShape:
        other = copy(self)
        other.of = {"app_name": app, "user_id": user}  # type: ignore[misc]  # of this object alone
        return other

    async def append_state(self, session: str, messages: Sequence[SentMessage], changes: dict[str, Any]) -> None:
        """Append an event that changes the session's state."""
        service, found = await self._session(session, **self._latest())
        if found is None:
            found = await await_if_needed(service.create_session(session_id=session, **self.of))
        (event,) = self.made(messages)
        if (actions := self.framework("google.adk.events")) is None:
            event["actions"] = DictMessage(state_delta=dict(changes))
        else:
            event.actions = actions.EventActions(state_delta=dict(changes))
        await await_if_needed(service.append_event(found, event))

    async def state(self, session: str) -> dict[str, Any] | None:
        """Read the state of the session; None if sessions have none."""
        _, found = await self._session(session)
        state = getattr(found, "state", None)
        return None if state is None else dict(state)


def _heard(event: Any) -> ReadMessage:
    parts = event.content.parts if event.content is not None else ()
    return ReadMessage("user" if event.author == "user" else "assistant", "".join(part.text or "" for part in parts))


def _has(example: Any, method: str) -> bool:
    return callable(getattr(example, method, None))
