"""Google ADK: sessions, events and state in a store of everturn's.

session_service.py  EverturnSessionService
events.py           ADK events as entries and back
session_ids.py      app, user and session as one session id
shared_state.py     `user:` and `app:` state, in sessions of their own
"""

from everturn.adapters._shared.sync_async import require

require("google-adk", (2, 10), "google-adk")

from everturn.adapters.google_adk.session_service import EverturnSessionService  # noqa: E402 - after the check

__all__ = ["EverturnSessionService"]
