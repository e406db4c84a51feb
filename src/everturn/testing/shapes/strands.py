"""The shape of Strands' `SessionRepository`: numbered messages of an agent in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from everturn.testing.shapes.base import DictMessage, ReadMessage, SentMessage
from everturn.testing.shapes.native_messages import plain, strands_messages
from everturn.testing.shapes.read_then_put import ReadThenPutShape

AGENT = "everturn_kit"


class StrandsShape(ReadThenPutShape):
    """`create_message(session_id, agent_id, message)` and `list_messages(session_id, agent_id)`.

    The kit does what a `RepositorySessionManager` does: it creates session and agent, and numbers the messages. A
    repository must refuse a number that is taken: otherwise the second of two workers writes over the first.
    """

    name = "Strands SessionRepository"
    calls = (
        "create_message(session_id, agent_id, session_message)",
        "list_messages(session_id, agent_id)",
    )
    unit = "message"
    has_roles = False
    appends_to = ("create_message",)
    clears_with = ("delete_session",)

    def more(self) -> set[str]:
        return super().more() | {"agents"}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seen: dict[str, tuple[int, int]] = {}  # by session: the place and the number of the last message seen
        self._agent = AGENT

    @classmethod
    def fits(cls, example: Any) -> bool:
        return all(
            callable(getattr(example, name, None))
            for name in ("create_session", "read_session", "create_agent", "create_message", "list_messages")
        )

    def message(self, sent: SentMessage) -> Any:
        return {"role": "user" if sent.role == "user" else "assistant", "content": [{"text": sent.content}]}

    def natives(self) -> Mapping[str, list[Any]]:
        return strands_messages()

    async def read_native(self, session: str) -> Any:
        return plain([one.message for one in await self.read_raw(session)])

    async def get(self, session: str) -> int:
        """Find the number of the next message. Creates session and agent, if they are not there."""
        if not await self._is_there(session):
            await self._create(session)
        place, last = self._seen.get(session, (0, None))
        found = await self.call(
            session, "list_messages", self._agent, offset=place
        )  # not all: the kit would be quadratic
        if last is not None and (not found or found[0].message_id != last):  # the session was deleted since
            place, found = 0, await self.call(session, "list_messages", self._agent)
        if not found:
            return 0
        self._seen[session] = (place + len(found) - 1, found[-1].message_id)
        return int(found[-1].message_id) + 1

    async def put(self, session: str, messages: Sequence[SentMessage], latest: Any, **options: Any) -> None:
        (message,) = self.made(messages)
        types = self.framework("strands.types.session")
        make = DictMessage if types is None else types.SessionMessage
        await self.call(session, "create_message", self._agent, make(message=message, message_id=latest), **options)

    async def read_raw(self, session: str) -> Any:
        return await self.call(session, "list_messages", self._agent) if await self._is_there(session) else []

    async def read(self, session: str) -> list[ReadMessage]:
        return [_read(one) for one in await self.read_raw(session)]

    async def clear(self, session: str) -> None:
        if await self.call(session, "read_session") is not None:  # a session that is not there may be refused
            await self.call(session, "delete_session")

    async def append_for(self, session: str, agent: str, messages: Sequence[SentMessage]) -> None:
        """Append to the messages of an agent in the session."""
        await self._for(agent).append(session, messages)

    async def read_for(self, session: str, agent: str) -> list[ReadMessage]:
        """Read the messages of an agent in the session."""
        return await self._for(agent).read(session)

    def _for(self, agent: str) -> StrandsShape:
        other = copy(self)
        other._agent, other._seen = agent, {}  # noqa: SLF001 - of this class
        return other

    async def _is_there(self, session: str) -> bool:
        return await self.call(session, "read_agent", self._agent) is not None

    async def _create(self, session: str) -> None:
        types = self.framework("strands.types.session")
        if await self.call(session, "read_session") is None:
            kind = "AGENT" if types is None else types.SessionType.AGENT
            make = DictMessage if types is None else types.Session
            await self.call(None, "create_session", make(session_id=session, session_type=kind))
        make = DictMessage if types is None else types.SessionAgent
        await self.call(session, "create_agent", make(agent_id=self._agent, state={}, conversation_manager_state={}))


def _read(one: Any) -> ReadMessage:
    message = one.message
    return ReadMessage(message["role"], "".join(part["text"] for part in message["content"]))
