"""Group commit with short reads on the connection that writes, and with Ctrl-C: the lead is always passed on."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import (
    MemoryStore,
    MemoryStoreBackendError,
    SessionNotFound,
)
from tests.integration.attempts import Attempt, queue
from tests.integration.children import eventually, locked, run
from tests.integration.disks import HeldDisk
from tests.integration.turns import (
    SESSION,
    Acknowledged,
    acknowledged,
    check,
    check_file,
    check_turns,
    numbers_by_writer,
    turn,
    url,
    write,
)
from tests.tiers import first

# --- looks: on the connection that writes, if it is free -------------------------------------------------------------


def test_a_look_does_not_wait_for_a_change_and_sees_what_was_before_it(store: MemoryStore, disk: HeldDisk) -> None:
    with disk.held():
        change = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        assert store.info("another session").version == 1
        with pytest.raises(SessionNotFound):
            store.info(SESSION)
        assert change.is_alive()
    assert change.outcome().version == 2
    assert store.info("another session").version == 2


def test_a_change_that_comes_during_a_look_waits_for_it(store: MemoryStore) -> None:
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    begun, go_on = threading.Event(), threading.Event()
    look = Attempt(lambda: commits.look(lambda _: (begun.set(), go_on.wait(60)), 60 + time.monotonic()))
    assert begun.wait(60)
    changes = [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"thread-{n}", 0))) for n in range(3)]
    eventually(lambda: len(queue(store)) == 3, "three changes that wait")
    assert commits.look(lambda _: "seen", 60 + time.monotonic()) is None
    assert store.info("another session").version == 1
    go_on.set()
    assert look.outcome() is not None
    assert {change.outcome().version for change in changes} == {1, 2, 3}
    assert store.info(SESSION).version == 3


def test_nobody_leads_until_a_look_has_passed_the_lead_on(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would settle what is running, and promote what is done, which is then run again."""
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    settle, changes, ran = commits._settle, list[Attempt](), list[str]()

    def and_meanwhile() -> None:
        if not changes:  # the look's
            changes.append(Attempt(lambda: commits.run(lambda _: ran.append("change"), 60 + time.monotonic())))
            eventually(lambda: len(queue(store)) == 1, "a change that waits")
            time.sleep(0.2)  # long enough for it to see that nobody leads, and to lead
            assert not ran
        settle()

    monkeypatch.setattr(commits, "_settle", and_meanwhile)
    assert commits.look(lambda _: "seen", 60 + time.monotonic()) == "seen"
    assert changes[0].outcome() is None
    assert commits.run(lambda _: ran.append("another"), 60 + time.monotonic()) is None
    assert ran == ["change", "another"]


def test_a_look_by_whoever_leads_does_not_wait_for_itself(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler may."""
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    settle, seen = commits._settle, list[Any]()

    def and_look() -> None:
        settle()
        seen.append(commits.look(lambda _: "seen", 60 + time.monotonic()))

    monkeypatch.setattr(commits, "_settle", and_look)
    assert Attempt(lambda: store.add_messages("another session", turn("me", 1))).outcome().version == 2
    assert seen == [None]


def test_a_look_does_not_see_what_an_interrupt_left_behind(store: MemoryStore) -> None:
    writer = store._operations.backend._database._writer  # type: ignore[attr-defined]  # SQLite's
    writer.execute("BEGIN IMMEDIATE; UPDATE sessions SET version = 7")
    assert store.info("another session").version == 1
    assert store.add_messages("another session", turn("me", 1)).version == 2


def test_a_look_that_fails_is_an_honest_error_and_leaves_the_lead(store: MemoryStore) -> None:
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    with pytest.raises(MemoryStoreBackendError, match="no such table") as raised:
        commits.look(lambda db: db.execute("SELECT * FROM nowhere"), 60 + time.monotonic())
    assert raised.value.outcome == "not_written"
    assert store.add_messages("another session", turn("me", 1)).version == 2


# --- Ctrl-C: signals reach the main thread, so each story is a process -----------------------------------------------


def interrupt_me(when: Callable[[], bool], what: str) -> threading.Thread:
    """Send this process Ctrl-C when the condition holds."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it

    def interrupt() -> None:
        eventually(when, what)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    return thread


def interrupt_the_leader(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    with locked(Path(path)) as lock:
        others: list[Attempt] = []

        def all_wait() -> bool:
            if len(queue(store)) == 1:  # the main thread's
                others.extend(Attempt(lambda n=n: write(store, folder, f"other-{n}", range(5))) for n in range(3))
            return len(queue(store)) == 4

        interrupt_me(all_wait, "three behind the leader")
        with pytest.raises(KeyboardInterrupt):
            store.add_messages(SESSION, turn("interrupted", 0))
        lock.release()
        assert [other.outcome() for other in others] == [None] * 3
    write(store, folder, "main", range(5))
    store.close()


def interrupt_a_follower(path: str, folder: str) -> None:
    with HeldDisk("held") as disk, everturn.open(url(path), vfs=disk.name, timeout=50) as store:
        with disk.held():
            leader = Attempt(lambda: write(store, folder, "leader", range(5)))
            assert disk.reached.wait(50)
            interrupt_me(lambda: len(queue(store)) == 1, "a follower")
            with pytest.raises(KeyboardInterrupt):
                store.add_messages(SESSION, turn("interrupted", 0))
            assert len(queue(store)) == 0
        assert leader.outcome() is None
        write(store, folder, "main", range(5))


@pytest.mark.parametrize("story", [interrupt_the_leader, interrupt_a_follower])
def test_an_interrupted_change_is_not_written_and_the_others_go_on(
    path: Path, tmp_path: Path, story: Callable[[str, str], None]
) -> None:
    run(story, path, tmp_path)
    check_file(path, tmp_path)
    assert {tuple(numbers) for numbers in acknowledged(tmp_path).values()} == {tuple(range(5))}


def interrupt_at_random(path: str, folder: str, seed: str) -> None:
    """A timer interrupts the main thread over and over while it writes and looks, and three threads write."""
    dice = random.Random(int(seed))
    sys.setswitchinterval(1e-5)
    store = everturn.open(url(path), timeout=50)
    stop = threading.Event()
    written = [0, 0, 0]
    armed = False

    def write_on(index: int) -> None:
        record = Acknowledged(folder, f"thread-{index}")
        while not stop.is_set():
            try:
                store.add_messages(SESSION, turn(f"thread-{index}", written[index]))
            except MemoryStoreBackendError as exc:
                if exc.outcome != "unknown":
                    raise
                present = turn(f"thread-{index}", written[index])[0] in store.get_history(SESSION, limit=200)
                if not present:
                    continue  # it was interrupted along with its leader; it may be sent again
            record(written[index])
            written[index] += 1

    def interrupt(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    def went_on(before: list[int]) -> bool:
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        return all(now > then for now, then in zip(written, before, strict=True))

    signal.signal(signal.SIGALRM, interrupt)
    threads = [Attempt(lambda index=index: write_on(index)) for index in range(3)]
    record = Acknowledged(folder, "main")
    interrupted: list[int] = []
    for number in range(400):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00001, 0.003))
            store.add_messages(SESSION, turn("main", number))
            store.info(SESSION)
            armed = False
        except (KeyboardInterrupt, RuntimeError):  # threading.Event.wait turns an untimely one into a RuntimeError
            armed = False
            interrupted.append(number)
        else:
            record(number)
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        if number % 20 == 0:
            before = list(written)
            eventually(lambda before=before: went_on(before), "the others go on")
    stop.set()
    assert [thread.outcome() for thread in threads] == [None] * 3
    store.close()
    print(*interrupted)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_interrupts_at_random_moments_wedge_nobody(path: Path, tmp_path: Path, seed: int) -> None:
    interrupted = {int(number) for number in run(interrupt_at_random, path, tmp_path, seed).split()}
    assert len(interrupted) > 20, "hardly any interrupt: the test saw nothing"
    record = acknowledged(tmp_path)
    with everturn.open(url(path)) as store:
        history = store.get_history(SESSION)
        there = set(numbers_by_writer(check_turns(history))["main"])
        # An interrupted change may have been under way in another thread's batch: it is there whole, or not at all.
        assert set(record["main"]) <= there <= set(record["main"]) | interrupted
        check(history, record | {"main": sorted(there)})
        assert store.verify().ok
