"""The event is committed; then the state is read, merged and stored."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.shapes import Adk, _event, made

CAUGHT_BY = ("state-at-once", "killed-in-append-event")


class Broken(Adk):
    async def get_session(self, *, app_name: str, user_id: str, session_id: str) -> Any:
        name = self.session(app_name, user_id, session_id)
        found, state = self.core.read(name), self.core.read(f"{name} state")
        made_here = await self.create_session(app_name=app_name, user_id=user_id, session_id=session_id)
        made_here.events = [_event(author, text) for author, text in found]
        made_here.state = dict(state[0]) if state else {}
        return made_here if found else None

    async def append_event(self, session: Any, event: Any) -> Any:
        name = self.session(session.app_name, session.user_id, session.id)
        self.core.append(name, [[event.author, event.content.parts[0].text]])
        actions = getattr(event, "actions", None)
        if actions is not None:
            state = self.core.read(f"{name} state")
            self.core.replace(f"{name} state", [{**(state[0] if state else {}), **actions.state_delta}])
        return event


factory = made(shape=Broken)
