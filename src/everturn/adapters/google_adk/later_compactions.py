"""ADK's compactions: events that stand for earlier ones in prompts. An append does not depend on them. Pure."""

from __future__ import annotations

from google.adk.events.event import Event
from google.adk.sessions.session import Session


def later_compactions(stored: list[Event], session: Session, event: Event) -> list[Event] | None:
    """Return the compactions that were stored since an object was loaded, if `event` may follow them.

    None if other events were stored as well; if `event` is a compaction itself, of events that may be compacted by
    now; or if its time lies in a compaction's range: ADK would take it for one of the events that were summarised.
    """
    if event.actions.compaction is not None:
        return None
    known = {one.id for one in session.events}
    first = 1 + max((index for index, one in enumerate(stored) if one.id in known), default=-1)
    if session.events and first == 0:
        return None
    later = stored[first:]
    for one in later:
        compaction = one.actions.compaction
        if compaction is None or one.actions.state_delta or event.timestamp <= compaction.end_timestamp:
            return None
    return later
