"""How a copy is asked for: stores or URLs, blocking or awaited, some sessions or all; and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import CopyProgress, CopyReport, InvalidInput, Unsupported
from tests.integration.copying.circle import in_a_circle
from tests.integration.copying.talks import assert_alike, fill, say
from tests.store.places import Place


def test_stores_can_be_named_by_their_urls(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db?namespace={name}&synchronous=OFF" for name in ("here", "there")]
    with everturn.open(urls[0]) as here:
        names = fill(here)
    assert everturn.copy(*urls).imported == len(names)
    assert everturn.copy(urls[0], urls[1]).skipped == len(names)
    with everturn.open(urls[0]) as here, everturn.open(urls[1]) as there:
        assert_alike(here, there, *names)
        assert everturn.copy(here, urls[1]).skipped == len(names)


@in_a_circle
def test_a_copy_can_be_awaited(source: Place, target: Place, small_steps: None) -> None:
    names = fill(source.open())

    async def main() -> CopyReport:
        async with await everturn.open_async(source.url) as here:
            report = await everturn.copy_async(here, target.url)
            again = await everturn.copy_async(source.url, target.url)
            assert (again.skipped, again.verified) == (len(names), len(names))
            return report

    assert asyncio.run(main()).imported == len(names)
    assert_alike(source.open(), target.open(), *names)


def test_only_the_sessions_named_are_copied(beside: Any) -> None:
    with everturn.open("sqlite://") as there:
        for name in "abcd":
            say(beside, name, "1")
        told: list[CopyProgress] = []
        report = everturn.copy(beside, there, iter(["a", "c", "a", "nobody"]), told.append)
        assert report == CopyReport(2, 0, 0, absent=1, verified=2, behind=0, conflicts=())
        assert [each.session_id for each in there.sessions().sessions] == ["a", "c"]
        assert [(each.session_id, each.outcome, each.sessions, each.total) for each in told] == [
            ("a", "imported", 1, 3),
            ("c", "imported", 2, 3),
            ("nobody", "absent", 3, 3),
        ]


def test_a_copy_of_nothing_is_nothing(beside: Any) -> None:
    with everturn.open("sqlite://") as there:
        say(there, "a", "1")
        assert everturn.copy(beside, there) == CopyReport(0, 0, 0, 0, 0, 0, ())
        assert everturn.copy(there, beside, []) == CopyReport(0, 0, 0, 0, 0, 0, ())


def test_a_store_copied_onto_itself_is_left_as_it_is(beside: Any) -> None:
    names = fill(beside)
    assert everturn.copy(beside, beside).skipped == len(names)


def test_progress_tells_of_long_sessions_on_the_way(target: Place, beside: Any, small_steps: None) -> None:
    say(beside, "long", *map(str, range(30)))
    told: list[CopyProgress] = []
    everturn.copy(beside, target.open(), progress=told.append)
    assert [each.outcome for each in told] == [None] * (len(told) - 1) + ["imported"]
    assert len(told) >= 6
    assert [each.entries for each in told] == sorted(each.entries for each in told)
    assert (told[-1].entries, told[-1].sessions, told[-1].total) == (30, 1, None)


def test_many_sessions_are_copied(target: Place, beside: Any) -> None:
    names = [f"session {number:03}" for number in range(200)]
    for number, name in enumerate(names):
        say(beside, name, f"hello {number}", key="greet")
    there = target.open()
    assert everturn.copy(beside, there) == CopyReport(200, 0, 0, 0, verified=200, behind=0, conflicts=())
    found = there.sessions(limit=1000).sessions
    assert [(each.session_id, each.life, each.version) for each in found] == [
        (name, beside.info(name).life, 1) for name in names
    ]
    assert say(there, names[7], "hello 7", key="greet").replayed


# --- within one database ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["valkey", "cluster", "postgres"], indirect=True)
def test_sessions_are_copied_into_another_namespace(target: Place, steps: None) -> None:
    here, there = target.open(namespace="one"), target.open(namespace="two")
    names = fill(here)
    assert everturn.copy(here, there).imported == len(names)
    assert_alike(here, there, *names)


@pytest.mark.parametrize("target", ["sqlite-file"], indirect=True)
def test_a_sqlite_file_keeps_a_snapshot_once(target: Place) -> None:
    here, there = target.open(namespace="one"), target.open(namespace="two")
    say(here, "plain", "1")
    say(here, "with a snapshot", "1")
    here.save_snapshot("with a snapshot")
    report = everturn.copy(here, there)
    assert (report.imported, [name for name, _ in report.conflicts]) == (1, ["with a snapshot"])
    assert "another database" in report.conflicts[0][1]
    assert here.verify().ok
    assert there.state("with a snapshot").version == 0


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, 1, b"sqlite://", object()])
def test_what_is_no_store_is_refused(beside: Any, end: Any) -> None:
    with pytest.raises(InvalidInput, match="source: is a store or the URL of one"):
        everturn.copy(end, beside)
    with pytest.raises(InvalidInput, match="target: is a store or the URL of one"):
        everturn.copy(beside, end)


@pytest.mark.parametrize("sessions", ["a", 1, [1], [""], ["a", None]])
def test_what_is_no_list_of_ids_is_refused(beside: Any, sessions: Any) -> None:
    with pytest.raises(InvalidInput, match="sessions"):
        everturn.copy(beside, "sqlite://", sessions)


def test_the_faces_are_not_mixed(beside: Any) -> None:
    async def main() -> None:
        async with await everturn.open_async("sqlite://") as awaited:
            with pytest.raises(InvalidInput, match=r"await everturn\.copy_async"):
                everturn.copy(beside, awaited)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match=r"use everturn\.copy"):
                await everturn.copy_async(beside, awaited)

    asyncio.run(main())


def test_a_backend_that_cannot_says_so(beside: Any) -> None:
    class Toy:
        """A third party's backend, with the operations of Backend and no others."""

        def __init__(self, backend: Any) -> None:
            for name in (
                "change",
                "read",
                "changes",
                "sessions",
                "find",
                "fork",
                "erase",
                "compact",
                "verify",
                "close",
            ):
                setattr(self, name, getattr(backend, name))

    toy = everturn.MemoryStore(Toy(beside._operations.backend), beside._operations.settings)  # type: ignore[arg-type]
    say(toy, "a", "1")
    with pytest.raises(Unsupported, match=r"the source .* everturn\.backend\.Portable"):
        everturn.copy(toy, "sqlite://")
    with pytest.raises(Unsupported, match=r"the target .* everturn\.backend\.Portable"):
        everturn.copy("sqlite://", toy)
