"""One process of a conversation whose Runner compacts: the summarizer answers when it hears a line."""

from __future__ import annotations

import sys

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.runners import Runner
from google.genai.types import Content, Part

import everturn
from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.google_adk import worker


def compaction_of(events: list[Event], text: str) -> Event:
    """Make the event that ADK's own summarizer makes."""
    content = Content(role="model", parts=[Part(text=text)])
    times = [event.timestamp for event in events]
    compaction = EventCompaction(start_timestamp=min(times), end_timestamp=max(times), compacted_content=content)
    return Event(author="user", actions=EventActions(compaction=compaction), invocation_id=Event.new_id())


class Slow(BaseEventsSummarizer):
    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        print("asked", flush=True)
        sys.stdin.readline()
        return compaction_of(events, f"a summary of {len(events)} events")


async def main(url: str, question: str) -> None:
    async with await everturn.open_async(url) as store:
        agent = LlmAgent(name="orders", model=worker.Scripted(model="scripted"))
        config = EventsCompactionConfig(summarizer=Slow(), compaction_interval=2, overlap_size=0)
        app = App(name="shop", root_agent=agent, events_compaction_config=config)
        service = EverturnSessionService(store)
        running = Runner(app=app, session_service=service, auto_create_session=True)
        print(await worker.ask(running, question), flush=True)
