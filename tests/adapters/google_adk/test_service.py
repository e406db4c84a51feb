"""EverturnSessionService, alone: ADK's rules of sessions, events and state, on both kinds of stores of a store."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, GroundingMetadata, Part, SearchEntryPoint, Transcription

import everturn
from everturn import ChatMessage, InvalidInput
from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.google_adk.stories import CONVERSATION, OF, loaded, say, tell, texts


def test_a_session_comes_back_as_the_object_that_was_appended_to(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF, state={"own": {"a": [1]}, "app:theme": "dark", "user:name": "Ann"})
        assert session == await loaded(service)
        for event in CONVERSATION:
            assert await service.append_event(session, event.model_copy(deep=True)) == event
        back = await loaded(service)
        assert back.events == CONVERSATION
        assert back == session
        assert back.state == {"own": {"a": [1]}, "app:theme": "dark", "user:name": "Ann"}
        assert back.last_update_time == CONVERSATION[-1].timestamp

    tell(story, tmp_path)


def test_an_absent_session_is_none_and_takes_no_event(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        assert await service.get_session(**OF) is None
        await service.delete_session(**OF)
        stranger = Session(app_name="shop", user_id="ann", id="1")
        with pytest.raises(SessionNotFoundError):
            await service.append_event(stranger, say("x"))
        session = await service.create_session(**OF)
        await service.delete_session(**OF)
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, say("x"))
        assert session.events == []
        again = await service.create_session(**OF)
        with pytest.raises(StaleSessionError):  # it has the version that the object has, in another life
            await service.append_event(session, say("x"))
        await service.append_event(again, say("y"))

    tell(story, tmp_path)


def test_a_session_is_created_once(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        await service.create_session(**OF, state={"own": 1, "app:n": 1})
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**OF, state={"own": 2, "app:n": 2})
        assert (await loaded(service)).state == {"own": 1, "app:n": 1}
        named = [await service.create_session(app_name="shop", user_id="ann") for _ in range(2)]
        assert named[0].id != named[1].id

    tell(story, tmp_path)


def test_state_goes_where_its_prefix_says(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        event = say("x", state={"own": 1, "app:a": 2, "user:u": 3, "temp:t": 4})
        await service.append_event(session, event)
        assert session.state == {"own": 1, "app:a": 2, "user:u": 3, "temp:t": 4}  # this invocation may read it
        assert session.events[-1].actions.state_delta == {"own": 1, "app:a": 2, "user:u": 3}
        assert (await loaded(service)).state == {"own": 1, "app:a": 2, "user:u": 3}
        assert (await loaded(service)).events == session.events
        same_user = await service.create_session(app_name="shop", user_id="ann")
        same_app = await service.create_session(app_name="shop", user_id="ben")
        other_app = await service.create_session(app_name="shop2", user_id="ann")
        assert [one.state for one in (same_user, same_app, other_app)] == [{"app:a": 2, "user:u": 3}, {"app:a": 2}, {}]
        assert await service.get_user_state(app_name="shop", user_id="ann") == {"u": 3}
        assert await service.get_user_state(app_name="shop", user_id="ben") == {}
        await service.append_event(same_user, say("y", state={"own": None, "user:u": None}))
        assert (await loaded(service)).state == {"own": 1, "app:a": 2, "user:u": None}

    tell(story, tmp_path)


def test_a_partial_event_is_not_stored(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        await service.append_event(session, say("Hel", author="a", partial=True, state={"own": 1}))
        assert session.events == []
        assert session.state == {}
        await service.append_event(session, say("Hello", author="a"))
        assert texts(await loaded(service)) == ["Hello"]

    tell(story, tmp_path)


def test_the_second_holder_of_a_session_is_told_that_it_is_stale(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        first = await service.create_session(**OF)
        second = await loaded(service)
        await service.append_event(first, say("one", timestamp=50.0))
        # By a clock it would not be: its time is later, and so is its event's.
        second.last_update_time = 10**10
        with pytest.raises(StaleSessionError, match="is at version 2, and was loaded at 1; load it again"):
            await service.append_event(second, say("lost?", timestamp=60.0, state={"own": 1, "app:n": 1, "temp:t": 1}))
        assert (second.events, second.state) == ([], {})
        assert (await loaded(service)).state == {}
        second = await loaded(service)
        await service.append_event(second, say("two", timestamp=40.0))  # a clock that is behind is nobody's trouble
        await service.append_event(second, say("three", timestamp=40.0))
        with pytest.raises(StaleSessionError):
            await service.append_event(first, say("four"))
        assert texts(await loaded(service)) == ["one", "two", "three"]

    tell(story, tmp_path)


def test_of_many_holders_at_once_one_wins_each_time(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        await service.create_session(**OF)
        holders = [await loaded(service) for _ in range(8)]
        done = await asyncio.gather(
            *(service.append_event(holder, say(str(n))) for n, holder in enumerate(holders)), return_exceptions=True
        )
        won = [one for one in done if isinstance(one, Event)]
        assert len(won) == 1
        assert all(isinstance(one, Event | StaleSessionError) for one in done)
        assert (await loaded(service)).events == won

    tell(story, tmp_path)


def test_parallel_branches_share_one_object_and_none_is_stale(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        await asyncio.gather(*(service.append_event(session, say(str(n))) for n in range(10)))
        assert sorted(texts(session)) == sorted(map(str, range(10)))
        assert await loaded(service) == session
        assert service._holders == {}

    tell(story, tmp_path)


def test_an_append_that_is_cancelled_is_in_the_object_if_it_is_stored(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        outcomes = set()
        for ticks in range(30):
            task = asyncio.ensure_future(service.append_event(session, say(f"{ticks}")))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            outcomes.add(type(outcome))
            stored = await service.get_session(**OF)
            assert stored is not None
            assert [event.id for event in stored.events] == [event.id for event in session.events]
            await service.append_event(session, say("and on"))
        assert asyncio.CancelledError in outcomes

    tell(story, tmp_path)


def test_an_event_that_comes_again_is_stored_once(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        before = session.model_copy(deep=True)
        event = say("one", state={"own": 1, "user:u": 1})
        await service.append_event(session, event)
        await service.append_event(session, event.model_copy(deep=True))
        await service.append_event(session, say("two"))
        await service.append_event(session, event)  # late, and by an object that has gone on
        await service.append_event(await loaded(service), event)
        assert texts(session) == ["one", "two"]
        assert texts(await loaded(service)) == ["one", "two"]
        await service.append_event(session, say("three"))
        await service.append_event(
            before, event
        )  # whoever heard nothing of it: it is kept, and the rest is news to them
        assert texts(before) == ["one"]
        with pytest.raises(StaleSessionError):
            await service.append_event(before, say("four"))
        await service.append_event(session, say("of its own", id=event.id))
        assert texts(await loaded(service)) == ["one", "two", "three", "of its own"]

    tell(story, tmp_path)


def test_an_object_of_another_place_is_judged_by_its_events(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        sent = Session.model_validate_json(session.model_dump_json())
        await service.append_event(sent, say("one"))
        with pytest.raises(StaleSessionError):
            await service.append_event(session, say("two"))
        stale = Session.model_validate_json(session.model_dump_json())
        with pytest.raises(StaleSessionError, match="other events than this object"):
            await service.append_event(stale, say("two"))
        fresh = Session.model_validate_json((await loaded(service)).model_dump_json())
        await service.append_event(fresh, say("two"))
        assert texts(await loaded(service)) == ["one", "two"]

    tell(story, tmp_path)


def test_a_config_says_which_events_are_wanted(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF, state={"own": 0})
        for number in range(40):
            await service.append_event(session, say(str(number), timestamp=float(number), state={"own": number}))
        for event in CONVERSATION[:3]:
            await service.append_event(session, event)
        everything = session.events

        async def wanted(**fields: Any) -> list[Event]:
            found = await service.get_session(**OF, config=GetSessionConfig(**fields))
            assert found is not None
            assert found.state == {"own": 39}
            return found.events

        for number in (0, 1, 2, 3, 30, 43, 99):
            assert await wanted(num_recent_events=number) == everything[43 - min(number, 43) :]
        assert await wanted(after_timestamp=38.0) == everything[38:]
        assert await wanted(after_timestamp=38.0, num_recent_events=2) == everything[-2:]
        assert await wanted(after_timestamp=1e12) == []
        assert await wanted() == everything
        few = await service.get_session(**OF, config=GetSessionConfig(num_recent_events=1))
        assert few is not None
        await service.append_event(few, say("and on"))  # few events do not make it stale
        assert [*everything, *few.events[-1:]] == (await loaded(service)).events

    tell(story, tmp_path)


def test_sessions_are_listed_without_events_latest_last(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        for user, name in (("ann", "1"), ("ann", "2"), ("ann/1", "3"), ("ben", "1")):
            await service.create_session(
                app_name="shop", user_id=user, session_id=name, state={"own": name, "user:u": user}
            )
        await service.create_session(app_name="shop/ann", user_id="1", session_id="1")
        session = await loaded(service)
        await service.append_event(session, say("x", state={"app:a": 1}))
        listed = (await service.list_sessions(app_name="shop", user_id="ann")).sessions
        assert [(one.id, one.events) for one in listed] == [("2", []), ("1", [])]
        assert [one.state for one in listed] == [{"own": number, "app:a": 1, "user:u": "ann"} for number in ("2", "1")]
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert [(one.user_id, one.id) for one in listed] == [("ann", "2"), ("ann/1", "3"), ("ben", "1"), ("ann", "1")]
        assert (await service.list_sessions(app_name="shop", user_id="cy")).sessions == []
        assert (await service.list_sessions(app_name="sho")).sessions == []
        await service.append_event(listed[0], say("y"))  # a listed session is as good as one that was loaded
        await service.delete_session(**OF)
        left = (await service.list_sessions(app_name="shop", user_id="ann")).sessions
        assert [one.id for one in left] == ["2"]
        assert left[0].state["app:a"] == 1

    tell(story, tmp_path)


def test_delete_is_erase(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def story() -> None:
        with everturn.open(f"sqlite:///{path}") as store:
            service = EverturnSessionService(store)
            session = await service.create_session(**OF)
            await service.append_event(session, say("unforgettable-4711"))
            await service.delete_session(**OF)
            assert store.find("unforgettable-4711") == []

    asyncio.run(story())
    assert b"unforgettable-4711" not in path.read_bytes()


def test_state_that_has_no_json_form_is_refused_by_name(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        circle: list[Any] = []
        circle.append(circle)
        unfit = (print, {"deep": [object()]}, float("nan"), {"deep": [float("-inf")]}, "\ud800", {"\ud800": 1}, circle)
        for value in unfit:
            for name in ("bad", "app:bad", "user:bad"):
                with pytest.raises(InvalidInput, match=rf"^event\.actions\.state_delta\['{name}'\]"):
                    await service.append_event(session, say("x", state={name: value, "app:fine": 1}))
                with pytest.raises(InvalidInput, match=rf"^state\['{name}'\]"):
                    await service.create_session(app_name="shop", user_id="ann", state={name: value})
        with pytest.raises(InvalidInput, match=r"^state\['\\ud800'\]: "):
            await service.create_session(app_name="shop", user_id="ann", state={"\ud800": 1})
        assert (session.events, session.state, (await loaded(service)).state) == ([], {}, {})
        day = dt.date(2026, 11, 16)
        await service.append_event(session, say("x", state={"day": day, "temp:any": print}))
        assert session.state == {"day": day, "temp:any": print}
        assert (await loaded(service)).state == {"day": "2026-11-16"}  # as ADK's own services keep it

    tell(story, tmp_path)


def test_what_is_loaded_shares_nothing(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF, state={"own": {"a": []}, "app:x": {"b": []}})
        await service.append_event(session, say("x", state={"more": {"c": []}}))
        one = await loaded(service)
        one.state["more"]["c"].append(1)
        assert one.events[0].actions.state_delta == {"more": {"c": []}}
        listed = (await service.list_sessions(app_name="shop")).sessions
        listed[0].state["app:x"]["b"].append(1)
        assert (await loaded(service)).state == {"own": {"a": []}, "app:x": {"b": []}, "more": {"c": []}}

    tell(story, tmp_path)


def test_rollback_takes_events_and_state_back_together() -> None:
    async def story() -> None:
        with everturn.open("sqlite://") as store:
            service = EverturnSessionService(store)
            session = await service.create_session(**OF, state={"own": 0})
            await service.append_event(session, say("one", state={"own": 1}))
            name = service.everturn_session(**OF)
            snapshot = store.save_snapshot(name)
            session = await loaded(service)
            await service.append_event(session, say("two", state={"own": 2, "app:n": 2}))
            store.rollback_to_snapshot(name, snapshot)
            with pytest.raises(StaleSessionError):
                await service.append_event(session, say("three"))
            back = await loaded(service)
            assert (texts(back), back.state) == (["one"], {"own": 1, "app:n": 2})
            store.undo(name)
            assert (await loaded(service)).state == {"own": 2, "app:n": 2}

    asyncio.run(story())


def test_messages_that_came_by_other_ways_are_events_too() -> None:
    async def story() -> None:
        with everturn.open("sqlite://") as store:
            service = EverturnSessionService(store)
            store.add_messages(service.everturn_session(**OF), [ChatMessage("user", "from elsewhere")])
            session = await loaded(service)
            assert texts(session) == ["from elsewhere"]
            await service.append_event(session, say("and on"))
            assert texts(await loaded(service)) == ["from elsewhere", "and on"]

    asyncio.run(story())


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="store"):
        EverturnSessionService("sqlite://")  # type: ignore[arg-type]


def test_an_event_changes_the_state_in_the_same_step() -> None:
    async def story() -> None:
        with everturn.open("sqlite://") as store:
            service = EverturnSessionService(store)
            session = await service.create_session(**OF)
            await service.append_event(
                session, Event(author="a", actions=EventActions(state_delta={"own": 1}, escalate=True))
            )
            assert [change.kind for change in store.changes(service.everturn_session(**OF))] == ["append", "append"]

    asyncio.run(story())


def test_of_two_that_create_a_session_at_once_one_does(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        states = [{"own": number, "user:u": number} for number in range(4)]
        done = await asyncio.gather(
            *(service.create_session(**OF, state=state) for state in states), return_exceptions=True
        )
        (created,) = [one for one in done if isinstance(one, Session)]
        assert all(isinstance(one, Session | AlreadyExistsError) for one in done)
        assert (await loaded(service)).state == created.state

    tell(story, tmp_path)


def test_bytes_and_all_else_that_an_event_carries_come_back(tmp_path: Path) -> None:
    async def story(service: EverturnSessionService) -> None:
        session = await service.create_session(**OF)
        event = Event(
            author="user",
            content=Content(role="user", parts=[Part.from_bytes(data=b"\x89PNG\0", mime_type="image/png")]),
            grounding_metadata=GroundingMetadata(search_entry_point=SearchEntryPoint(sdk_blob=b"\xff\xfe")),
            input_transcription=Transcription(text="said", finished=True),
            partial=False,
            turn_complete=True,
            interrupted=True,
            actions=EventActions(artifact_delta={"file": 0}, agent_state={}, escalate=False),
        )
        await service.append_event(session, event)
        (back,) = (await loaded(service)).events
        assert back == event
        assert back.model_dump_json() == event.model_dump_json()

    tell(story, tmp_path)
