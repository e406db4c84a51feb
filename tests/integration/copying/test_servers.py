"""Servers that fail under a copy, and the ones behind sentinels. Each test has its own."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn import CopyProgress, MemoryStoreBackendError
from everturn.testing.servers import postgres_server, valkey_sentinel, valkey_server
from tests.integration.copying.talks import assert_alike, fill


@pytest.mark.parametrize("start", [lambda: valkey_server(appendonly=True), postgres_server], ids=["valkey", "postgres"])
def test_a_copy_whose_server_is_killed_says_so_and_is_finished_by_the_next(
    beside: Any, small_steps: None, start: Any
) -> None:
    names = fill(beside)
    with start() as server, everturn.open(server.url, timeout=2) as there:

        def kill(progress: CopyProgress) -> None:
            if progress.sessions > 4 and progress.outcome is None:
                server.kill()

        with pytest.raises(MemoryStoreBackendError):
            everturn.copy(beside, there, progress=kill)
        server.restart()
        report = everturn.copy(beside, there)
        assert (report.ok, report.verified) == (True, len(names))
        assert_alike(beside, there, *names)
        assert there.verify().ok


def test_a_server_that_fails_over_under_a_copy_is_followed(beside: Any, small_steps: None) -> None:
    """What had not reached the replica when the master fell is brought by the next copy."""
    names = fill(beside)
    with valkey_sentinel(appendonly=True) as servers, everturn.open(servers.url, timeout=60) as there:
        killed = []

        def kill(progress: CopyProgress) -> None:
            if progress.sessions == 4 and not killed:
                killed.append(servers.kill_master())

        everturn.copy(beside, there, progress=kill)
        assert killed
        assert everturn.copy(beside, there).verified == len(names)
        assert_alike(beside, there, *names)
        with everturn.open("sqlite://") as back:
            assert everturn.copy(there, back).imported == len(names)
            assert_alike(beside, back, *names)
