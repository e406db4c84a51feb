"""The kit's fork servers in tests: forked from a process that has imported what they import, not started.

A start costs a third of a second of processor, and some hundred tests need one; with a framework it costs seconds. The
command and users start theirs (`tests/kit/test_plain_install.py`, `tests/docs/`, `tests/package/`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.testing.kit.target import Target
from everturn.testing.workers import controller, fork_server
from tests.integration import children
from tests.integration.warm_parent import Job

# Drivers that most targets open their stores with. Targets are imported in their own fork servers, since some break
# things; but those of the adapters are ours, and a framework takes seconds.
DRIVERS = ("apsw", "sqlite3", "redis", "everturn.backends.sqlite", "everturn.backends.redis")
SOUND = "tests.adapters."


class ForkedServer:
    """A fork server that is a child of the warm parent."""

    def __init__(self, target: Target, line: int, log: int) -> None:
        self._code, ended = os.pipe()
        imports = (*DRIVERS, target.module) if target.module.startswith(SOUND) else DRIVERS
        job = Job(__name__, serve.__name__, (str(Path.cwd()),), dict(os.environ), imports)
        self._pid = children._warm_parent().fork(job, [line, log, log, ended])
        os.close(ended)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            if not select.select([self._code], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork server", timeout or 0)
            self._status = int.from_bytes(os.read(self._code, 4), "big", signed=True)
            os.close(self._code)
        return self._status

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


def serve(folder: str) -> None:
    """Run in the child, whose stdin is the line to the kit: be a fork server as a started one is."""
    line = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(folder)
    sys.argv = [fork_server.__file__, str(line)]
    fork_server.main(line)


@pytest.fixture(scope="module", autouse=True)
def warm_fork_servers() -> Iterator[None]:
    """Import this fixture in a conftest.py, and the runs of its folder get their fork servers so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller, "start", ForkedServer)
        yield
