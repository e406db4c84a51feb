"""Parts of tests about `os.fork`: threads that write, children that end with their body, handles that are open."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from everturn import MemoryStore
from tests.integration.children import eventually
from tests.integration.turns import SESSION, Acknowledged, turn


@contextmanager
def writing_threads(store: MemoryStore, folder: str, family: str = "thread", count: int = 3) -> Iterator[list[int]]:
    """Threads that write until the end of the block. Yields how many turns each has written."""
    written = [0] * count
    stop = threading.Event()

    def write_on(index: int) -> None:
        record = Acknowledged(folder, f"{family}-{index}")
        while not stop.is_set():
            store.add_messages(SESSION, turn(f"{family}-{index}", written[index]))
            record(written[index])
            written[index] += 1
        record.close()

    threads = [threading.Thread(target=write_on, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        stop.set()
        for thread in threads:
            thread.join(50)
            assert not thread.is_alive(), "a writing thread hangs"


def go_on(written: list[int]) -> None:
    """Wait until every thread has written once more."""
    before = list(written)
    eventually(lambda: all(now > then for now, then in zip(written, before, strict=True)), "the threads go on")


def fork(body: Callable[[], None]) -> int:
    """Run the body in a child. Returns the child's id."""
    pid = os.fork()
    if pid == 0:
        _end(body)
    return pid


def _end(body: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        body()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


def wait_for(*pids: int) -> None:
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def database_handles(path: str) -> list[str]:
    """The open handles of this process that lead to the database or the files beside it."""
    found = []
    for handle in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the one that the list was read with
            found.append(str(handle.readlink()))
    return [name for name in found if name.startswith(path)]
