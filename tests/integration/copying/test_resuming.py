"""A copy that is killed at any moment leaves whole sessions, and is finished by running it again."""

from __future__ import annotations

import random
from typing import Any

import pytest

import everturn
from tests.integration.children import children
from tests.integration.copying.small import copy_aloud
from tests.integration.copying.talks import assert_alike, fill, say
from tests.store.places import Place

KILLS = 6


def whole_ones(here: Any, there: Any, names: list[str]) -> list[str]:
    """The sessions that are there. Each of them is whole."""
    arrived = [name for name in names if there.state(name).version]
    assert [name for name in arrived if there.state(name) != here.state(name)] == []
    return arrived


def test_a_copy_killed_again_and_again_is_finished_by_the_next(target: Place, tmp_path: Any) -> None:
    choose = random.Random(type(target).__name__)
    here, there = everturn.open(f"sqlite:///{tmp_path}/here.db", synchronous="OFF"), target.open()
    names = fill(here)
    for number in range(3):
        say(here, f"long {number}", *map(str, range(100)))
        names.append(f"long {number}")
    for _ in range(KILLS):
        with children((copy_aloud, f"sqlite:///{tmp_path}/here.db", target.url)) as (copying,):
            assert copying.line() == "begun"
            for _ in range(choose.randrange(30)):
                copying.line()
            copying.kill()  # wherever it is by now
        whole_ones(here, there, names)
        assert there.verify().ok
    report = everturn.copy(here, there)
    assert report.ok
    assert (report.imported + report.skipped, report.verified) == (len(names), len(names))
    assert_alike(here, there, *names)
    assert there.verify().ok
    here.close()


def test_a_copy_ended_by_an_error_is_finished_by_the_next(target: Place, beside: Any, small_steps: None) -> None:
    there = target.open()
    names = fill(beside)

    def fail(progress: everturn.CopyProgress) -> None:
        if progress.sessions == 3 and progress.outcome is None:
            raise InterruptedError("in the middle of the fourth")

    with pytest.raises(InterruptedError):
        everturn.copy(beside, there, progress=fail)
    assert len(whole_ones(beside, there, names)) == 3
    report = everturn.copy(beside, there)
    assert (report.skipped, report.imported) == (3, len(names) - 3)
    assert_alike(beside, there, *names)


# --- what is left behind ---------------------------------------------------------------------------------------------


def begin_and_leave(here: Any, there: Any) -> None:
    """A copy of the session "a" that ends when some of it is staged."""

    def leave(_: everturn.CopyProgress) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        everturn.copy(here, there, ["a"], leave)


def test_what_is_left_behind_is_seen_by_nobody(target: Place, beside: Any, small_steps: None) -> None:
    there = target.open()
    say(beside, "a", *map(str, range(30)))
    begin_and_leave(beside, there)
    assert target.editor.entries() > 0
    assert there.sessions().sessions == ()
    assert there.get_history("a") == []
    assert there.verify().problems == ()
    say(there, "a", "a session of its own")
    assert [message.content for message in there.get_history("a")] == ["a session of its own"]
    assert there.verify().problems == ()


@pytest.mark.parametrize("target", ["sqlite-file", "postgres"], indirect=True)
def test_what_is_left_behind_is_reaped_when_ten_minutes_are_over(target: Place, beside: Any, small_steps: None) -> None:
    from tests.store.places import Clock

    there, clock = target.open(), Clock()
    target.set_clock(there, clock)
    say(beside, "a", *map(str, range(30)))
    begin_and_leave(beside, there)
    clock.advance(599)
    there.compact()
    assert target.editor.entries() > 0
    clock.advance(2)
    there.compact()
    assert target.editor.entries() == 0
    assert there.verify().problems == ()


@pytest.mark.parametrize("target", ["valkey", "cluster"], indirect=True)
def test_what_is_left_behind_expires_by_itself(target: Place, beside: Any, small_steps: None) -> None:
    there = target.open()
    say(beside, "a", *map(str, range(30)))
    begin_and_leave(beside, there)
    clients = list(target.editor._clients)  # type: ignore[attr-defined]
    left = {key: client.pttl(key) for client in clients for key in client.scan_iter()}
    assert left
    assert [key for key, milliseconds in left.items() if not 0 < milliseconds <= 600_000] == []


@pytest.mark.parametrize("target", ["sqlite-file", "postgres"], indirect=True)
def test_erase_takes_what_was_left_behind(target: Place, beside: Any, small_steps: None) -> None:
    there = target.open()
    say(beside, "a", *(f"secret {number}" for number in range(30)))
    begin_and_leave(beside, there)
    assert there.erase("a").entries > 0
    assert target.editor.remnants("secret") == {}


@pytest.mark.parametrize("target", ["sqlite-file", "postgres"], indirect=True)
def test_a_copy_whose_portions_were_reaped_under_it_begins_anew(target: Place, beside: Any, small_steps: None) -> None:
    from tests.store.places import Clock

    there, clock = target.open(), Clock()
    target.set_clock(there, clock)
    say(beside, "a", *map(str, range(30)))
    stalled = []

    def stall(progress: everturn.CopyProgress) -> None:
        if progress.entries == 20 and not stalled:
            stalled.append(progress)
            clock.advance(601)
            there.compact()

    assert everturn.copy(beside, there, progress=stall).imported == 1
    assert stalled
    assert_alike(beside, there, "a")
    there.compact()
    assert target.editor.entries() == 30
