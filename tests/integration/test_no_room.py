"""Disks that are full and file handles that have run out: an honest error, nothing lost, usable afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import MemoryStore, MemoryStoreBackendError, MemoryStoreError
from tests.integration.children import run
from tests.integration.turns import SESSION, Acknowledged, check, check_file, turn, url, write

# --- a full disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_is_an_honest_error_and_passes(path: Path) -> None:
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
        writer = store._operations.backend._database._writer
        writer.pragma("max_page_count", writer.pragma("page_count") + 8)
        acknowledged = 1
        while not (error := failure_of(store, acknowledged)):
            acknowledged += 1
        assert "full" in str(error)
        assert error.outcome == "not_written"
        check(store.get_history(SESSION), {"me": list(range(acknowledged))})
        assert store.verify().ok
        writer.pragma("max_page_count", 1_000_000)
        store.add_messages(SESSION, turn("me", acknowledged))
        check(store.get_history(SESSION), {"me": list(range(acknowledged + 1))})


def failure_of(store: MemoryStore, number: int) -> MemoryStoreBackendError | None:
    """Append a turn. Returns the error if that fails."""
    try:
        store.add_messages(SESSION, turn("me", number))
    except MemoryStoreBackendError as exc:
        return exc
    return None


def largest_file(path: str) -> int:
    return max(Path(path).stat().st_size, Path(path + "-wal").stat().st_size)


@contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    before, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, hard))


def outgrow_the_limit(path: str, folder: str, room: str) -> None:
    """Write until a file may not grow any more; then with more room, go on."""
    store = everturn.open(url(path), timeout=5)
    write(store, folder, "me", range(3))
    largest = largest_file(path)
    record = Acknowledged(folder, "me")
    number = 3
    for _ in range(3):
        with limited(resource.RLIMIT_FSIZE, largest + int(room)):
            while not (error := failure_of(store, number)):
                record(number)
                number += 1
                assert number < 10_000, "the limit was never felt"
            there = {message.text for message in store.get_history(SESSION)}
            assert (turn("me", number)[0].text in there) <= (error.outcome == "unknown"), "not_written, and there"
            assert "disk" in str(error), error
        if error.outcome == "unknown" and turn("me", number)[0].text in there:
            record(number)
            number += 1
        store.add_messages(SESSION, turn("me", number))
        record(number)
        number += 1
    assert store.verify().ok
    os._exit(0)  # without a close: what was acknowledged must be on the disk by now


@pytest.mark.parametrize("room", [0, 1000, 5000, 40_000, 33_000])
def test_a_limit_on_file_size_is_an_honest_error_and_passes(path: Path, tmp_path: Path, room: int) -> None:
    run(outgrow_the_limit, path, tmp_path, room)
    check_file(path, tmp_path)


def outgrow_the_limit_together(path: str, folder: str) -> None:
    """Many tasks at once: what does not fit fails alone, and what is acknowledged is there."""

    async def story() -> None:
        store = await everturn.open_async(url(path), timeout=20)
        await store.add_messages("another session", turn("me", 0))
        largest = largest_file(path)
        with limited(resource.RLIMIT_FSIZE, largest + 120_000):
            calls: list[Any] = [store.add_messages(SESSION, turn(f"small-{n}", 0)) for n in range(8)]
            calls.insert(4, store.save_context(SESSION, "x" * 500_000, "too large"))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        error = outcomes.pop(4)
        assert isinstance(error, MemoryStoreBackendError)
        assert error.outcome == "not_written", error
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, everturn.Receipt), outcome
            Acknowledged(folder, f"small-{number}")(0)
        await store.close()

    asyncio.run(asyncio.wait_for(story(), 50))


def test_a_limit_on_file_size_fails_only_what_does_not_fit(path: Path, tmp_path: Path) -> None:
    run(outgrow_the_limit_together, path, tmp_path)
    check_file(path, tmp_path)


def create_without_room(path: str) -> None:
    everturn.open("sqlite://").close()
    with limited(resource.RLIMIT_FSIZE, 5000), pytest.raises(MemoryStoreBackendError) as caught:
        everturn.open(url(path), timeout=5)
    assert caught.value.outcome == "not_written"
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
        assert store.verify().ok


def test_a_disk_too_small_for_a_new_store_is_an_honest_error_and_passes(path: Path) -> None:
    run(create_without_room, path)


# --- no file handles left --------------------------------------------------------------------------------------------


@contextmanager
def no_handles() -> Iterator[None]:
    """Leave no handle to open: the limit is below the lowest free one."""
    lowest = os.dup(0)
    os.close(lowest)
    with limited(resource.RLIMIT_NOFILE, lowest):
        yield


def run_out_of_handles(path: str, folder: str) -> None:
    with everturn.open(url(path), timeout=5) as store:
        record = Acknowledged(folder, "me")

        def append(*numbers: int) -> None:
            for number in numbers:
                store.add_messages(SESSION, turn("me", number))
                record(number)

        append(0, 1)
        with no_handles():
            append(2, 3)  # the writer is open already
            expect_no_handle(lambda: store.get_history(SESSION))
            expect_no_handle(lambda: everturn.open(url(path), timeout=2))
            expect_no_handle(lambda: everturn.open(url(path + ".new"), timeout=2))
            append(4, 5)
        assert len(store.get_history(SESSION)) == 12
        with no_handles():
            assert len(store.get_history(SESSION)) == 12  # a reader is open now
        pid = os.fork()
        if pid == 0:
            with no_handles():  # the fork closed the connections, and none can be opened again
                expect_no_handle(lambda: store.add_messages(SESSION, turn("me", 99)))
            write(store, folder, "child", range(3))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        append(6, 7)


def expect_no_handle(call: Callable[[], object]) -> None:
    with pytest.raises(MemoryStoreBackendError, match="open files") as caught:
        call()
    assert caught.value.outcome == "not_written"


def test_no_file_handles_is_an_honest_error_and_passes(path: Path, tmp_path: Path) -> None:
    run(run_out_of_handles, path, tmp_path)
    check_file(path, tmp_path)


def open_first_without_handles(path: str) -> None:
    open_store = everturn.open
    with no_handles(), pytest.raises(MemoryStoreError) as caught:
        open_store(url(path), timeout=2)
    assert isinstance(caught.value, MemoryStoreBackendError), repr(caught.value)
    everturn.open(url(path)).close()


def test_a_first_open_without_file_handles_is_an_honest_error_and_passes(path: Path) -> None:
    run(open_first_without_handles, path)
