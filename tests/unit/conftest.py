"""Keeps tests/unit pure: a test here that starts a process or opens a connection fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

IMPURE = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "socket.connect"}
_watching: list[str] = []  # the test that runs now


class ImpureTest(RuntimeError):
    """A test of tests/unit did what it must not."""


def _refuse(event: str, _arguments: object) -> None:
    if event in IMPURE and _watching:
        raise ImpureTest(f"{_watching[-1]}: {event}; put the test elsewhere (CONTRIBUTING.md, Where a test goes)")


sys.addaudithook(_refuse)  # for good: Python has no way to take one back


@pytest.fixture(autouse=True)
def is_pure(request: pytest.FixtureRequest) -> Iterator[None]:
    _watching.append(request.node.nodeid)
    yield
    _watching.pop()
