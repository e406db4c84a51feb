"""The change of an event is applied to the object in memory and not to the row."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Adk, made

CAUGHT_BY = ("state-with-events",)


class Broken(Adk):
    async def append_event(self, session: Any, event: Any) -> Any:
        session.state |= event["actions"]["state_delta"] if "actions" in event else {}
        event.pop("actions", None)
        return await super().append_event(session, event)


factory = made(Core, Broken)
