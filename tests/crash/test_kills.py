"""SIGKILL at many points: the file opens, is sound, and holds every acknowledged change."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path
from threading import Thread

import pytest

import everturn
from tests.integration.children import Child, children
from tests.integration.turns import SESSION, check, turn, url
from tests.tiers import first

THREADS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def say(*words: object) -> None:
    """Tell the test at once, past every buffer that a kill would empty."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write_for_ever(path: str, round_: str) -> None:
    """Threads that append; their changes share commits."""
    store = everturn.open(url(path), timeout=50)

    def write_on(writer: str) -> None:
        number = 0
        while True:
            store.add_messages(SESSION, turn(writer, number))
            say(writer, number)
            number += 1

    threads = [Thread(target=write_on, args=(f"{round_}-{index}",)) for index in range(THREADS)]
    for thread in threads:
        thread.start()


def change_for_ever(path: str, round_: str) -> None:
    """Make changes of every kind to one session; say the version after each."""
    store = everturn.open(url(path), timeout=50)
    say(store.save_snapshot(SESSION, round_).version)
    first = store.list_snapshots(SESSION)[0]
    for number in itertools.count():
        say(store.save_context(SESSION, f"{round_} {number}", "x" * 3000).version)
        say(store.save_snapshot(SESSION, f"{round_} {number}").version)
        say(store.save_context(SESSION, "more", "of it").version)
        say(store.trim(SESSION, max_messages=2).version)
        say(store.rollback_to_snapshot(SESSION, first).version)
        say(store.undo(SESSION).version)
        say(store.save_context(SESSION, "and", "more").version)
        say(store.clear(SESSION).version)
        say(store.replace(SESSION, turn("again", number)).version)
        if number % 5 == 4:
            store.compact(SESSION)


def kill_after(child: Child, acknowledgements: int, delay: float) -> list[str]:
    """Kill the child some time after it has been told so many times. Returns all that it had said."""
    assert child.stdout is not None
    said = [child.line() for _ in range(acknowledgements)]
    assert all(said), child.finished()
    time.sleep(delay)  # some part of a change; which one is left to chance
    child.send_signal(signal.SIGKILL)
    said += child.stdout.read().splitlines()
    child.wait()
    return said


def numbers(said: list[str]) -> dict[str, list[int]]:
    record: dict[str, list[int]] = {}
    for line in said:
        writer, number = line.split()
        record.setdefault(writer, []).append(int(number))
    return record


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_a_killed_process_loses_nothing_acknowledged(path: Path, seed: int) -> None:
    """One file for every round, so that each begins with what the last kill left."""
    dice = random.Random(seed)
    record: dict[str, list[int]] = {}
    for round_ in range(7):
        with children((write_for_ever, path, round_)) as (child,):
            said = kill_after(child, dice.randrange(1, 60), dice.choice([0, dice.uniform(0, 0.004)]))
        record |= {f"{round_}-{index}": [] for index in range(THREADS)} | numbers(said)
        with everturn.open(url(path)) as store:
            history = store.get_history(SESSION)
            check(history, record, killed=[writer for writer in record if writer.startswith(f"{round_}-")])
            report = store.verify()
            assert report.ok, report.problems
        for message in history[::2]:  # what the killed ones had under way is settled now
            writer, number, _ = message.text.split(" ")
            if int(number) not in record[writer]:
                record[writer].append(int(number))


@pytest.mark.parametrize("nth", [1, 2, 5, 13, 34])
def test_a_kill_right_after_an_acknowledgement_loses_nothing(path: Path, nth: int) -> None:
    with children((write_for_ever, path, "only")) as (child,):
        said = kill_after(child, nth, 0)
    record = {f"only-{index}": [] for index in range(THREADS)} | numbers(said)
    with everturn.open(url(path)) as store:
        check(store.get_history(SESSION), record, killed=record)
        assert store.verify().ok


def test_a_process_killed_amid_changes_of_all_kinds_leaves_a_sound_session(path: Path) -> None:
    dice = random.Random(7)
    version = 0
    for round_ in range(8):
        with children((change_for_ever, path, round_)) as (child,):
            said = [int(line) for line in kill_after(child, dice.randrange(1, 80), dice.uniform(0, 0.003))]
        assert said == list(range(version + 1, version + 1 + len(said))), "a change was doubled or lost"
        with everturn.open(url(path)) as store:
            report = store.verify()
            assert report.ok, report.problems
            version = store.info(SESSION).version
            assert version in (said[-1], said[-1] + 1), "lost, or more than the one change under way"
            assert [change.version for change in store.changes(SESSION, limit=5)] == list(
                range(version, version - 5, -1)
            )[: min(5, version)]
            store.get_history(SESSION)


def test_a_reader_reads_on_when_the_writer_is_killed(path: Path) -> None:
    with everturn.open(url(path)) as reader:
        for round_ in range(3):
            before = len(reader.get_history(SESSION))
            with children((write_for_ever, path, round_)) as (child,):
                said = kill_after(child, 20, 0)
            assert len(reader.get_history(SESSION)) >= before + 2 * len(said)
            reader.add_messages("another session", turn("me", round_))
        assert reader.verify().ok
