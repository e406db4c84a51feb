"""Google ADK: sessions, events and state in a store of everturn's: `Runner(session_service=EverturnSessionService(s))`.

session_service.py    EverturnSessionService, ADK's interface
events.py             ADK's events as entries and back
later_compactions.py  which compactions an append may follow
loaded_session.py     ADK's Session objects, with the version at which each was loaded
session_state.py      the state of one session, from its records
shared_state.py       `app:` and `user:` state, each in a session of its own; state_sharing.py reads and changes both
session_ids.py        app, user and session name as one session id
once_per_call.py      once_per_call, for tools: a call is an effect, done once
"""

from everturn.adapters._shared.sync_async import require

require("google-adk", (2, 10), "google-adk")

from everturn.adapters.google_adk.once_per_call import once_per_call  # noqa: E402 - after the check
from everturn.adapters.google_adk.session_service import EverturnSessionService  # noqa: E402 - after the check

__all__ = ["EverturnSessionService", "once_per_call"]
