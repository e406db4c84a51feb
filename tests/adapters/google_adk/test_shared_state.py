"""State that sessions share: merged once, in whatever order writers die, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.adk.events import Event
from google.adk.sessions import Session

import everturn
from everturn import InvalidInput, MemoryStore
from everturn.adapters.google_adk import EverturnSessionService, shared_state
from everturn.adapters.google_adk.session_ids import names_of, session_of, state_of
from everturn.adapters.google_adk.state_sharing import StateSharing
from tests.adapters.google_adk.stories import OF, loaded, say
from tests.adapters.stores import WatchedStore
from tests.store.places import Servers

OTHER = OF | {"session_id": "2"}


class Dying(EverturnSessionService):
    """A writer that is gone at its nth change. It works in the test's own thread, so that the end gets out."""

    def __init__(self, store: MemoryStore, at: int) -> None:
        super().__init__(store)
        self.left = at
        self._store: Any = WatchedStore(self._store, self._mortal)
        self._shared = StateSharing(self._store, is_blocking=True)

    async def _mortal(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
        if method in {"append", "set_ttl"}:
            if self.left == 0:
                call.close()
                raise KeyboardInterrupt
            self.left -= 1
        return await call


async def die(store: MemoryStore, at: int, session: Session, event: Event) -> None:
    """Append an event by a writer that has only so many changes left."""
    with pytest.raises(KeyboardInterrupt):
        await Dying(store, at)._append(session, event)


def with_store(
    story: Callable[[MemoryStore], Awaitable[None]], url: str = "sqlite://", *, ttl: float | None = None
) -> None:
    async def run() -> None:
        with everturn.open(url, namespace=uuid4().hex[:12], ttl=ttl) as store:
            await story(store)

    asyncio.run(run())


@pytest.fixture(params=["sqlite", "valkey", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/memory.db"
    return str(getattr(servers, request.param).url)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_writer_that_dies_between_leaves_nothing_half(url: str, at: int) -> None:
    """The event first, then `app:`, then `user:`: whoever loads the session brings the rest."""

    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        await service.create_session(**OF, state={"app:n": 0, "user:u": 0})
        session = await loaded(service)
        await die(store, at, session, say("x", state={"own": 1, "app:n": 1, "user:u": 1}))
        assert (session.events, session.state) == ([], {"app:n": 0, "user:u": 0})
        if at == 0:
            assert (await loaded(service)).events == []
        else:
            back = await loaded(service)
            assert back.state == {"own": 1, "app:n": 1, "user:u": 1}
        assert (await loaded(service, **OF)).state["app:n"] == min(at, 1)
        other = await service.create_session(**OTHER)
        assert other.state == {"app:n": min(at, 1), "user:u": min(at, 1)}
        assert store.verify().ok

    with_store(story, url)


def test_who_heard_nothing_may_append_again() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        session = await service.create_session(**OF)
        event = say("x", state={"own": 1, "app:n": 1, "user:u": 1})
        await die(store, 6, session, event)  # two changes each begin the shared states, which are not there yet
        await service.append_event(session, event)
        assert session.state == {"own": 1, "app:n": 1, "user:u": 1}
        assert await loaded(service) == session
        assert len(store.state(state_of("shop")).records) == 2

    with_store(story)


def test_a_change_that_was_merged_is_not_merged_again() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        session = await service.create_session(**OF)
        await service.append_event(session, say("x", state={"app:n": "old"}))
        other = await service.create_session(**OTHER)
        await service.append_event(other, say("y", state={"app:n": "new"}))
        for _ in range(2):
            assert (await loaded(service)).state == {"app:n": "new"}
        store.erase(state_of("shop"))
        assert (await loaded(service)).state == {}  # erased is erased, though events still tell

    with_store(story)


def test_a_log_is_folded_and_still_knows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "FOLD", 8)
    monkeypatch.setattr(shared_state, "KNOWN", 4)

    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        idle = await service.create_session(**OF)
        await service.append_event(idle, say("x", state={"app:first": "old"}))
        late = await service.create_session(**OTHER)
        await die(store, 1, late, say("too late", state={"app:first": "too late"}))
        busy = await service.create_session(app_name="shop", user_id="ben")
        for number in range(40):
            await service.append_event(busy, say("y", state={"app:first": number, f"app:{number % 3}": number}))
            assert len(store.state(state_of("shop")).records) <= 8
        expected = {"app:first": 39, "app:0": 39, "app:1": 37, "app:2": 38}
        for of in (OF, OTHER):  # neither what is long merged, nor what is too old to merge, comes over what is new
            assert (await loaded(service, **of)).state == expected
        soon = await service.create_session(**OF | {"session_id": "3"})
        await die(store, 1, soon, say("soon enough", state={"app:1": "soon"}))
        for _ in range(3):
            await service.append_event(busy, say("z", state={"app:2": "z"}))
        assert (await loaded(service, **OF | {"session_id": "3"})).state == expected | {"app:1": "soon", "app:2": "z"}
        assert store.verify().ok

    with_store(story)


def ttls(store: MemoryStore) -> dict[str, float | None]:
    return {one.session_id: one.ttl for one in store.sessions().sessions}


def test_shared_state_does_not_expire_under_the_sessions_that_share_it(url: str) -> None:
    """They go on with changes of their own, which refresh nothing here."""

    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        await service.create_session(**OF, state={"app:theme": "dark"})
        session = await loaded(service)
        await service.append_event(session, say("x", state={"user:name": "Ann"}))
        await service.append_event(session, say("y"))
        assert ttls(store) == {"shop#state": None, "shop/ann#state": None, "shop/ann/1": 60.0}
        store.erase("shop/ann/1")
        assert (await service.create_session(**OF)).state == {"app:theme": "dark", "user:name": "Ann"}

    with_store(story, url, ttl=60)


def test_a_shared_state_whose_beginner_died_is_kept_by_the_next_who_changes_it() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        session = await service.create_session(**OF)
        event = say("x", state={"app:n": 1})
        await die(store, 1, session, event)
        assert ttls(store)["shop#state"] == 60.0
        other = await service.create_session(**OTHER)
        await service.append_event(other, say("y", state={"app:m": 1}))
        assert ttls(store)["shop#state"] is None
        await service.append_event(session, event)
        assert (await loaded(service)).state == {"app:n": 1, "app:m": 1}

    with_store(story, ttl=60)


def test_a_shared_state_that_was_erased_under_its_sessions_is_kept_when_they_begin_it_again() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        session = await service.create_session(**OF, state={"app:n": 1, "user:u": 1})
        other = await service.create_session(**OTHER)
        store.erase(state_of("shop"))
        store.erase(state_of("shop", "ann"))
        changes = {"app:n": 2, "user:u": 2}
        await die(store, 2, session, say("x", state=changes))  # the event, the first change of `app:`, no more
        assert ttls(store)["shop#state"] == 60.0
        await service.append_event(other, say("y", state=changes))
        assert ttls(store) | {"shop/ann/1": None, "shop/ann/2": None} == dict.fromkeys(ttls(store))
        assert (await loaded(service, **OTHER)).state == changes

    with_store(story, ttl=60)


def test_a_time_to_live_that_somebody_gave_a_shared_state_is_left_to_it() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        session = await service.create_session(**OF, state={"user:u": 1})
        store.set_ttl(state_of("shop", "ann"), 3600)
        await service.append_event(session, say("x", state={"user:u": 2}))
        await service.append_event(await loaded(service), say("y", state={"user:u": 3}))
        assert ttls(store)["shop/ann#state"] == 3600

    with_store(story, ttl=60)


def test_only_a_shared_state_that_begins_costs_a_request_more() -> None:
    class Counting(EverturnSessionService):
        def __init__(self, store: MemoryStore) -> None:
            super().__init__(store)
            self.calls: list[str] = []
            self._store: Any = WatchedStore(self._store, self._counted)
            self._shared = StateSharing(self._store, is_blocking=True)

        async def _counted(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
            self.calls.append(method)
            return await call

    async def story(store: MemoryStore) -> None:
        service = Counting(store)
        session = await service.create_session(**OF)
        for state, expected in (
            ({"user:u": 1}, ["append", "set_ttl", "append", "append"]),
            ({"user:u": 2}, ["append", "append"]),
            ({"own": 1}, ["append"]),
            ({}, ["append"]),
        ):
            service.calls.clear()
            await service.append_event(session, say("x", state=state))
            assert service.calls == expected

    with_store(story, ttl=60)


def test_many_sessions_share_without_losing(tmp_path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/memory.db") as store:
            service = EverturnSessionService(store)

            async def talk(number: int) -> None:
                session = await service.create_session(app_name="shop", user_id="ann")
                for turn in range(5):
                    await service.append_event(session, say("x", state={f"app:{number}": turn, f"user:{number}": turn}))

            await asyncio.gather(*map(talk, range(20)))
            session = await service.create_session(**OF)
            expected = {f"{scope}:{number}": 4 for scope in ("app", "user") for number in range(20)}
            assert session.state == expected
            assert (await store.verify()).ok

    asyncio.run(story())


@pytest.mark.parametrize(
    "names", [("a", "b", "c"), ("a/b", "", "c"), ("a", "/b", "c#state"), ("%2F", "#", "%23"), (" ", "a\0", "é")]
)
def test_names_are_nobody_elses(names: tuple[str, str, str]) -> None:
    assert names_of(session_of(*names)) == names
    assert names_of(state_of(*names[:2])) is None
    assert names_of(state_of(names[0])) is None
    assert state_of(*names[:2]) != session_of(*names)


async def refused(service: EverturnSessionService, **of: str) -> str:
    with pytest.raises(InvalidInput) as told:
        await service.create_session(**of)
    return str(told.value)


def test_names_that_are_too_long_are_told_to_be_one_name_together() -> None:
    async def story(store: MemoryStore) -> None:
        service = EverturnSessionService(store)
        names = {"app_name": "shop", "user_id": "u" * 400, "session_id": "s" * 200}
        assert await refused(service, **names) == (
            "app_name, user_id, session_id: together name a session, of at most 512 bytes, and these make 606"
        )
        with pytest.raises(InvalidInput, match="together name a session"):
            await service.get_session(**names)
        long = {"app_name": "shop", "user_id": "é" * 251, "session_id": "s"}
        assert await refused(service, **long) == (
            "app_name, user_id: together name their shared state, of at most 512 bytes, and these make 513"
        )
        fits = {"app_name": "shop", "user_id": "/" * 50, "session_id": "s" * 356}  # a slash is written %2F
        session = await service.create_session(**fits)
        assert len(service.everturn_session(**fits)) == 512
        await service.append_event(session, say("x", state={"app:n": 1, "user:u": 1}))
        assert await loaded(service, **fits) == session
        assert "513" in await refused(service, **fits | {"session_id": "s" * 357})

    with_store(story)
