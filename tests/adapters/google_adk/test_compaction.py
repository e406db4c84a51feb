"""ADK's compactions over EverturnSessionService: they lose nothing, and make no other request stale."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import RunConfig
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig

import everturn
from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.google_adk import compacting_worker, worker
from tests.adapters.google_adk.compacting_worker import compaction_of
from tests.adapters.google_adk.stories import loaded, say
from tests.adapters.stores import over_both_stores
from tests.integration.children import children

OF = {"app_name": "shop", **worker.OF}


async def begun(store: Any) -> tuple[EverturnSessionService, Any]:
    """A session of two events, loaded."""
    service = EverturnSessionService(store)
    session = await service.create_session(**OF)
    for text in ("one", "two"):
        await service.append_event(session, say(text))
    return service, await loaded(service, **OF)


def test_a_compaction_elsewhere_makes_no_object_stale(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        service, held = await begun(store)
        other = await loaded(service, **OF)
        await service.append_event(other, compaction_of(other.events, "both"))
        await service.append_event(held, say("three"))  # adk-python#5194: this was refused
        stored = await loaded(service, **OF)
        assert [event.id for event in held.events] == [event.id for event in stored.events]
        assert [event.actions.compaction is not None for event in stored.events] == [False, False, True, False]
        await service.append_event(held, say("four"))
        assert len((await loaded(service, **OF)).events) == 5

    over_both_stores(tmp_path, story)


def test_an_event_beside_the_compaction_does(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        service, held = await begun(store)
        other = await loaded(service, **OF)
        await service.append_event(other, compaction_of(other.events, "both"))
        await service.append_event(other, say("three"))
        with pytest.raises(StaleSessionError):
            await service.append_event(held, say("four"))
        assert len(held.events) == 2
        assert len((await loaded(service, **OF)).events) == 4

    over_both_stores(tmp_path, story)


def test_a_rollback_beside_the_compaction_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/memory.db") as store:
            service, held = await begun(store)
            await store.save_snapshot("shop/ann/42")
            other = await loaded(service, **OF)
            await service.append_event(other, compaction_of(other.events, "both"))
            with pytest.raises(StaleSessionError):
                await service.append_event(held, say("three"))

    asyncio.run(story())


def test_an_event_of_a_time_that_was_compacted_is_not_taken_for_a_summarised_one(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        service, held = await begun(store)
        other = await loaded(service, **OF)
        await service.append_event(other, compaction_of(other.events, "both"))
        early = say("three")
        early.timestamp = other.events[0].timestamp  # a clock that is behind
        with pytest.raises(StaleSessionError):
            await service.append_event(held, early)

    over_both_stores(tmp_path, story)


def test_of_two_compactions_at_once_one_is_stored(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        service, held = await begun(store)
        other = await loaded(service, **OF)
        await service.append_event(other, compaction_of(other.events, "first"))
        with pytest.raises(StaleSessionError):
            await service.append_event(held, compaction_of(held.events, "second"))
        assert len((await loaded(service, **OF)).events) == 3

    over_both_stores(tmp_path, story)


def compactions(events: list[Event]) -> list[str]:
    return [
        part.text or ""
        for event in events
        if event.actions.compaction
        for part in event.actions.compaction.compacted_content.parts or ()
    ]


def test_a_conversation_goes_on_while_another_process_compacts_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"

    async def story() -> None:
        async with await everturn.open_async(url) as store:
            service = EverturnSessionService(store)
            running = worker.runner(service)
            await worker.ask(running, "one")
            with children((compacting_worker.main, url, "two")) as (other,):
                assert await asyncio.to_thread(other.line) == "asked"
                await worker.ask(running, "three")  # so that the summary comes too late: ADK drops it
                other.stdin.write("\n")
                assert (await asyncio.to_thread(other.line)).startswith("You began with")
            assert compactions((await loaded(service, **OF)).events) == []
            with children((compacting_worker.main, url, "four")) as (other,):
                assert await asyncio.to_thread(other.line) == "asked"
                held = await loaded(service, **OF)
                other.stdin.write("\n")
                assert await asyncio.to_thread(other.line)
            await service.append_event(held, say("five"))  # loaded before the compaction was stored
            session = await loaded(service, **OF)
            assert compactions(session.events) == ["a summary of 8 events"]
            assert len(session.events) == 10
            # The summary, "five", and the new question: that is all a model gets.
            assert (await worker.ask(running, "six")).endswith("(seen 3)")

    asyncio.run(story())


def test_a_run_loads_no_more_than_its_prompt_needs_and_a_rewind_finds_what_was_compacted(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        service = EverturnSessionService(store)
        running = worker.runner(service)
        for text in ("one, order", *map(str, range(10))):
            await worker.ask(running, text)
        session = await loaded(service, **OF)
        first = next(event.invocation_id for event in session.events[4:] if event.author == "user")
        await service.append_event(session, compaction_of(session.events, "so far"))
        few = RunConfig(get_session_config=GetSessionConfig(num_recent_events=3))
        held = await service.get_session(**OF, config=few.get_session_config)
        assert (len(held.events), held.state["order"]) == (3, 1234)
        assert await worker.ask(running, "and now", run_config=few) == "You began with 'so far' (seen 2)"
        await running.rewind_async(**worker.OF, rewind_before_invocation_id=first)
        assert (await worker.ask(running, "again")).startswith("You began with 'one, order'")

    over_both_stores(tmp_path, story)
