"""Many processes on one server: the incident that everturn is for, over PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import everturn
from everturn import ChatMessage
from tests.integration.children import children
from tests.integration.writers import turn

PROCESSES, TURNS, SESSIONS = 6, 40, 8


def write_blocking(url: str, writer: str) -> None:
    with everturn.open(url, timeout=60) as store:
        for number in range(TURNS):
            store.add_messages("shared", turn(f"{writer}-{number}"))
            store.add_messages(f"s{number % SESSIONS}", turn(f"{writer}-{number}"))


def write_in_batches(url: str, writer: str) -> None:
    """Batches of every process lock the same sessions, asked for in an order of its own."""

    async def main() -> None:
        order = random.Random(writer)
        async with await everturn.open_async(url, timeout=60) as store:
            for number in range(TURNS // 4):
                names = ["shared", *(f"s{n}" for n in range(SESSIONS))]
                order.shuffle(names)
                calls: list[Any] = [store.add_messages(name, turn(f"{writer}-{number}")) for name in names]
                calls += [store.add_messages(name, [ChatMessage("user", "x")], key="once") for name in ("k1", "k2")]
                await asyncio.gather(*calls)

    asyncio.run(main())


def run(target: Any, url: str) -> None:
    with children(*((target, url, number) for number in range(PROCESSES))) as started:
        for child in started:
            child.finished()


def check(store: Any, session_id: str, turns: int) -> None:
    texts = [message.content for message in store.get_history(session_id)]
    assert texts[::2] == texts[1::2], "turns of two writers are interleaved"
    assert len(set(texts)) == len(texts) // 2 == turns
    for writer in range(PROCESSES):
        mine = [int(text.partition("-")[2]) for text in texts[::2] if text.startswith(f"{writer}-")]
        assert mine == sorted(mine)


def test_six_processes_on_one_session_lose_nothing(url: str) -> None:
    run(write_blocking, url)
    with everturn.open(url) as store:
        check(store, "shared", PROCESSES * TURNS)
        assert store.info("shared").version == PROCESSES * TURNS
        assert store.verify().ok


def test_batches_of_six_processes_on_the_same_sessions_lose_nothing(url: str) -> None:
    run(write_in_batches, url)
    with everturn.open(url) as store:
        for name in ("shared", *(f"s{n}" for n in range(SESSIONS))):
            check(store, name, PROCESSES * TURNS // 4)
        assert len(store.get_history("k1")) == len(store.get_history("k2")) == 1
        assert store.verify().ok


def change_at_random(url: str, writer: str) -> None:
    """Every kind of change on two sessions that all share; whatever is refused is refused."""
    choose = random.Random(writer)
    with everturn.open(url, timeout=60) as store:
        for number in range(TURNS):
            name = choose.choice(["x", "y"])
            try:
                change(store, choose, name, f"{writer}-{number}")
            except (
                everturn.InvalidInput,
                everturn.SessionNotFound,
                everturn.SnapshotNotFound,
                everturn.VersionConflict,
            ):
                continue


def change(store: Any, choose: random.Random, name: str, text: str) -> None:
    match choose.randrange(9):
        case 0:
            store.save_snapshot(name, text)
        case 1:
            snapshots = store.list_snapshots(name)
            store.rollback_to_snapshot(name, choose.choice(snapshots) if snapshots else "none")
        case 2:
            store.undo(name)
        case 3:
            store.trim(name, max_messages=choose.randrange(1, 9))
        case 4:
            store.clear(name)
        case 5:
            store.compact(name)
        case 6:
            store.fork(name, text)
        case 7:
            store.replace(name, turn(text), after=choose.choice([0, 1, 2]))
        case _:
            store.append(name, [*turn(text), everturn.Summary(text, [1.0], (1, 2))])


def test_every_kind_of_change_from_six_processes_leaves_sound_sessions(url: str) -> None:
    run(change_at_random, url)
    with everturn.open(url, timeout=30) as store:
        report = store.verify()
        assert report.ok, report.problems
        for session in store.sessions(limit=1000).sessions:
            state = store.state(session.session_id)
            assert len(state.messages) == session.messages
        store.compact()
        assert store.verify().ok
