"""ADK's prefixes user:, app: and temp: mean nothing to it: all state is that of one session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import ListSessionsResponse

from tests.kit.sound.core import Core

CAUGHT_BY = ("state-scopes",)


class Broken(BaseSessionService):
    def __init__(self, core: Core) -> None:
        self.core = core

    async def create_session(self, *, app_name: str, user_id: str, session_id: str | None = None, **_: Any) -> Session:
        return Session(id=session_id or "s", app_name=app_name, user_id=user_id)

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Session | None:
        rows = self.core.read(json.dumps([app_name, user_id, session_id]))
        found = Session(id=session_id, app_name=app_name, user_id=user_id)
        found.events = [Event.model_validate(row) for row in rows]
        for event in found.events:
            found.state |= event.actions.state_delta
        return found if rows else None

    async def append_event(self, session: Session, event: Event) -> Event:
        name = json.dumps([session.app_name, session.user_id, session.id])
        self.core.append(name, [event.model_dump(mode="json")])
        return event

    async def list_sessions(self, **_: Any) -> ListSessionsResponse:
        return ListSessionsResponse()

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self.core.clear(json.dumps([app_name, user_id, session_id]))


def factory(where: Path) -> Broken:
    return Broken(Core(where))
