"""The adapter as a target of the contract kit: `everturn check tests.adapters.google_adk.target:on_sqlite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.adk.errors import StaleSessionError
from google.adk.events import Event
from google.adk.sessions import Session

from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.stores import at_dynamodb, in_a_file, on_a_server


class Insisting(EverturnSessionService):
    """With the loop that ADK's documentation asks for: a stale session is loaded again, a few times."""

    async def append_event(self, session: Session, event: Event) -> Event:
        for _ in range(5):
            try:
                return await super().append_event(session, event)
            except StaleSessionError:
                app, user = session.app_name, session.user_id
                session = await self.get_session(app_name=app, user_id=user, session_id=session.id) or session
        return await super().append_event(session, event)


@contextmanager
def on_sqlite(
    where: Path, ttl: float | None = None, timeout: float | None = None, vfs: str | None = None
) -> Iterator[EverturnSessionService]:
    with in_a_file(where, ttl=ttl, timeout=timeout, vfs=vfs) as store:
        yield Insisting(store)


@contextmanager
def on_valkey(
    where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None
) -> Iterator[EverturnSessionService]:
    with on_a_server(where, redis_url, ttl=ttl, timeout=timeout) as store:
        yield Insisting(store)


on_dynamodb = at_dynamodb(on_valkey)
