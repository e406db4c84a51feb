"""Both stores may be in use while sessions are copied."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

import everturn
from everturn.backends.sqlite import page_checksums
from everturn.transfer import copy, endpoint
from everturn.transfer.protocol import PortionRequest
from tests.integration.copying.circle import in_a_circle
from tests.integration.copying.talks import assert_alike, say
from tests.row_seals import seal
from tests.store.places import Clock, Place

SESSIONS = [f"session {number}" for number in range(4)]


def change(store: Any, name: str, choose: random.Random) -> None:
    """One change that someone may make: mostly turns; sometimes one that moves the head, or reclaims what was there."""
    kind = choose.choice(["say"] * 6 + ["snapshot", "rollback", "trim", "clear", "compact", "delete", "undo"])
    snapshots = store.list_snapshots(name)
    if kind == "snapshot":
        store.save_snapshot(name)
    elif kind in ("rollback", "delete") and snapshots:
        method = store.rollback_to_snapshot if kind == "rollback" else store.delete_snapshot
        method(name, choose.choice(snapshots))
    elif kind == "trim":
        store.trim(name, max_messages=choose.randrange(5))
    elif kind == "clear":
        store.clear(name)
    elif kind == "compact":
        store.compact(name)
    elif kind == "undo" and store.info(name).undo_steps:
        store.undo(name, expected_version=store.info(name).version)
    else:
        say(store, name, f"{choose.random()}")


class Writers:
    """A writer for each session, which makes as many changes as it is asked for."""

    def __init__(self, store: Any) -> None:
        self.made = 0
        self._store = store
        self._asked = [threading.Semaphore(0) for _ in SESSIONS]
        self._over = False
        self._failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(len(SESSIONS))]

    def ask(self, changes: int) -> None:
        for asked in self._asked:
            asked.release(changes)

    def _work(self, number: int) -> None:
        choose = random.Random(number)
        try:
            while self._asked[number].acquire() and not self._over:
                change(self._store, SESSIONS[number], choose)
                self.made += 1
        except Exception as exc:  # noqa: BLE001 - whatever it is, the test tells
            self._failures.append(exc)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self.ask(1)
        for thread in self._threads:
            thread.join()
        assert self._failures == []


@in_a_circle
def test_a_session_that_is_changed_meanwhile_arrives_as_it_was_at_one_moment(
    source: Place, target: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PortionRequest", partial(PortionRequest, entries=40, changes=50))
    monkeypatch.setattr(copy, "AT_ONCE", 10)
    here, there = source.open(timeout=30), target.open(timeout=30)
    for name in SESSIONS:
        say(here, name, *map(str, range(20)))
    behind = 0
    with Writers(here) as writers:
        for _ in range(2):  # it is imported, and then extended
            before = writers.made
            writers.ask(200)  # fewer than are remembered: else an ancestor could not be told from another
            report = everturn.copy(here, there)
            assert report.conflicts == ()
            assert report.imported + report.extended + report.skipped == len(SESSIONS)
            assert there.verify().problems == ()
            behind += report.behind
            assert writers.made > before
    assert behind > 0  # else nobody was at work
    report = everturn.copy(here, there)
    assert (report.verified, report.behind, report.conflicts) == (len(SESSIONS), 0, ())
    for name in SESSIONS:
        assert there.state(name) == here.state(name)


def test_a_session_that_is_changed_in_the_target_once_it_is_there_is_verified_all_the_same(
    target: Place, beside: Any
) -> None:
    there = target.open()
    say(beside, "a", "1")

    class Eager:
        """A target's backend, whose users go on with a session as soon as it is there."""

        def __getattr__(self, name: str) -> Any:
            return getattr(there._operations.backend, name)

        async def restore(self, arrival: Any, deadline: float) -> Any:
            outcome = await there._operations.backend.restore(arrival, deadline)
            say(there, "a", "goes on")
            return outcome

    eager = everturn.MemoryStore(Eager(), there._operations.settings)  # type: ignore[arg-type]
    report = everturn.copy(beside, eager)
    assert (report.imported, report.verified, report.behind, report.ok) == (1, 1, 0, True)


def test_what_is_reclaimed_under_the_copy_is_not_damage(source: Place, beside: Any, steps: None) -> None:
    here = source.open()
    say(here, "a", "kept")
    snapshot = here.save_snapshot("a")
    say(here, "a", *map(str, range(20)))
    doomed = here.save_snapshot("a")
    here.rollback_to_snapshot("a", snapshot)
    for _ in range(10):  # so that no undo step reaches what the doomed snapshot shows
        here.clear("a")
        say(here, "a", "kept")

    class Tidied:
        """A source's backend; between a look at a session and what it names, someone reclaims some of that."""

        done = False

        def __getattr__(self, name: str) -> Any:
            return getattr(here._operations.backend, name)

        async def portion(self, request: Any, deadline: float) -> Any:
            if not self.done:
                self.done = True
                here.delete_snapshot("a", doomed)
                assert here.compact("a").entries == 20
            return await here._operations.backend.portion(request, deadline)

    tidied = everturn.MemoryStore(Tidied(), here._operations.settings)  # type: ignore[arg-type]
    assert everturn.copy(tidied, beside).imported == 1
    assert_alike(here, beside, "a")


# --- time ------------------------------------------------------------------------------------------------------------


@in_a_circle
def test_what_is_left_of_a_ttl_is_kept(source: Place, target: Place) -> None:
    here, there = source.open(), target.open(ttl=5)
    clocks = Clock(1_000_000.0), Clock(2_000_000.0)  # they need not agree
    source.set_clock(here, clocks[0])
    target.set_clock(there, clocks[1])
    say(here, "a", "kept for 100 seconds")
    here.set_ttl("a", 100)
    say(here, "b", "kept for good")
    clocks[0].advance(40)
    everturn.copy(here, there)
    assert (there.info("a").ttl, there.info("b").ttl) == (100, None)
    assert there.info("a").expires_at == pytest.approx(2_000_060, abs=0.5)
    clocks[1].advance(59)
    assert len(there.get_history("a")) == 1
    clocks[1].advance(2)
    assert there.get_history("a") == []
    assert len(there.get_history("b")) == 1


def test_a_copy_does_not_refresh_a_ttl_but_an_extension_brings_the_new_one(target: Place, beside: Any) -> None:
    there = target.open()
    clock = Clock()
    beside._operations.backend._clock = clock
    target.set_clock(there, clock)
    say(beside, "a", "1")
    beside.set_ttl("a", 100)
    clock.advance(20)
    everturn.copy(beside, there)
    clock.advance(30)
    everturn.copy(beside, there)
    assert there.info("a").expires_at == pytest.approx(clock.now + 50, abs=0.5)
    say(beside, "a", "2")
    everturn.copy(beside, there)
    assert there.info("a").expires_at == pytest.approx(clock.now + 100, abs=0.5)
    beside.set_ttl("a", None)
    everturn.copy(beside, there)
    assert there.info("a").expires_at is None
    clock.advance(1000)
    assert_alike(beside, there, "a")


def test_a_session_that_expires_under_the_copy_is_absent(source: Place, beside: Any, small_steps: None) -> None:
    here, clock = source.open(), Clock()
    source.set_clock(here, clock)
    say(here, "a", *map(str, range(30)))
    here.set_ttl("a", 100)
    report = everturn.copy(here, beside, progress=lambda told: clock.advance(0 if told.outcome else 60))
    assert (report.imported, report.absent, report.ok) == (0, 1, True)
    assert beside.sessions().sessions == ()


def test_the_servers_let_a_copied_session_expire_by_themselves(servers: Any, beside: Any) -> None:
    servers.valkey.command("FLUSHALL")
    say(beside, "a", "1")
    beside.save_snapshot("a")
    beside.set_ttl("a", 100)
    with everturn.open(servers.valkey.url) as there:
        everturn.copy(beside, there)
        left = {int(servers.valkey.command("PTTL", key)) for key in servers.valkey.command("KEYS", "*")}
        assert all(98_000 < milliseconds <= 100_001 for milliseconds in left)
        assert max(left) - min(left) <= 1000


def test_a_state_that_its_source_reclaimed_during_the_copy_is_no_damage(tmp_path: Path) -> None:
    """Compact may reclaim it once the head has moved on, and only then does the copy bring the change."""
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        say(store, "a", "1", "2")
    with closing(page_checksums.connect(f"{tmp_path}/memory.db")) as db:
        db.execute("UPDATE changes SET head = NULL WHERE version = (SELECT max(version) FROM changes)")
        seal(db)
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        assert store.verify().problems == ()
