"""Exceptions that a signal's handler raises in the middle of a call reach its caller; nothing sends again behind them.

Celery stops a task so (SoftTimeLimitExceeded), and so does many a time-out of one's own. Signals reach the main thread,
so each story is a process.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import signal
import socket
import sys
from collections import Counter
from typing import Any

import pytest
import redis

import everturn
from everturn import MemoryStoreBackendError
from everturn.testing.servers import ValkeyServer, valkey_server
from tests.integration.children import run
from tests.store.speech import user

PAUSED, LIVE = 20, 150  # rounds


class SoftTimeLimitExceeded(Exception):
    """As Celery's, which derives from Exception."""


class Interrupted(KeyboardInterrupt):
    pass


RAISED: dict[str, type[BaseException]] = {
    "soft": SoftTimeLimitExceeded,
    "keyboard": Interrupted,
    "timeout": TimeoutError,
    "connection": ConnectionError,
    "type": TypeError,
}


class Alarm:
    """Raises in the main thread, a little later."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.error = kind("the handler's own")
        self.has_rung = False
        self._kind = kind
        signal.signal(signal.SIGALRM, self)

    def __call__(self, _signal: int, _frame: object) -> None:
        self.has_rung = True
        self.error = self._kind("the handler's own")
        raise self.error

    def became(self, call: Any, seconds: float) -> str:
        """What becomes of a call when the alarm rings so much later: `in time`, `raised` or `swallowed`."""
        self.has_rung = False
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as exc:
            is_like_it = type(exc) is self._kind and exc.__cause__ is self.error  # Python's own, made in a codec
            if exc is self.error or is_like_it:
                return "raised"
            if isinstance(exc, MemoryStoreBackendError):
                return "swallowed" if self.has_rung else "failed"
            raise
        return "swallowed" if self.has_rung else "in time"


def opened(url: str, client: str) -> Any:
    if client == "own":
        return everturn.open(url, timeout=1.0, warnings=False)
    return everturn.from_client(redis.Redis.from_url(url, socket_timeout=1.0), timeout=1.0, warnings=False)


def storm(kind: str, client: str) -> None:
    dice = random.Random(11)
    alarm = Alarm(RAISED[kind])
    ignored: list[Any] = []
    sys.unraisablehook = ignored.append  # Python itself ignores what is raised in a `__del__`
    with valkey_server() as server, opened(server.url, client) as store:

        def work() -> None:
            store.add_messages("a", [user("x")])
            store.get_history("a", limit=1)

        for _ in range(20):
            work()
        paused: Counter[str] = Counter()
        for number in range(PAUSED):
            server.pause()
            paused[alarm.became(work, dice.uniform(0.001, 0.02))] += 1
            server.resume()
            if number % 2:  # else the next call has to connect, and to log in, to a server that does not answer
                work()
        assert paused == {"raised": PAUSED}
        live: Counter[str] = Counter()
        for _ in range(LIVE if client == "own" else 0):  # a pool of redis-py's own keeps some to itself
            ignored.clear()
            became = alarm.became(work, dice.uniform(0.00005, 0.003))
            live["in a finalizer" if ignored and became == "swallowed" else became] += 1
        assert live["raised"] > LIVE / 10 or client != "own", live
        # Where redis-py was interrupted while connecting, Python closes the socket, and may be interrupted in that.
        assert live["swallowed"] <= LIVE / 50, live
        assert set(live) <= {"raised", "in time", "in a finalizer", "swallowed"}, live
        work()
        assert store.verify().ok


@pytest.mark.parametrize(
    ("kind", "client"), [*((kind, "own") for kind in RAISED), ("soft", "borrowed"), ("timeout", "borrowed")]
)
def test_what_a_handler_raises_reaches_the_caller(kind: str, client: str) -> None:
    run(storm, kind, client)


def fill_descriptors() -> list[socket.socket]:
    """Leave this process none to open."""
    gc.collect()  # what is closed later would leave it one
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken: list[socket.socket] = []
    while True:
        try:
            taken.append(socket.socket())
        except OSError:
            return taken


def without_descriptors(url: str) -> None:
    def refused(call: Any) -> None:
        with pytest.raises(MemoryStoreBackendError) as caught:
            call()
        assert caught.value.outcome == "not_written"

    async def awaited() -> None:
        store = await everturn.open_async(url, timeout=0.3, warnings=False)
        await store.sessions()  # connected, and then not any more
        for lender in store._engine.backend.sender.lines._lenders.values():  # type: ignore[attr-defined]  # Redis's
            await lender.close()
            lender._closed = False
        taken = fill_descriptors()
        for call in (lambda: store.add_messages("a", [user("x")]), lambda: everturn.open_async(url, timeout=0.3)):
            with pytest.raises(MemoryStoreBackendError) as caught:
                await call()  # type: ignore[no-untyped-call]
            assert caught.value.outcome == "not_written"
        for each in taken:
            each.close()
        assert (await store.add_messages("a", [user("x")])).version == 1
        await store.close()

    clients = [redis.Redis.from_url(url), redis.Redis.from_url(url.replace("127.0.0.1", "localhost"))]
    everturn.open(url, warnings=False).close()  # all is imported
    with everturn.open(url, timeout=0.3, warnings=False, namespace="b") as store:
        store._engine.backend.sender.lines._lenders.clear()  # type: ignore[attr-defined]  # Redis's
        taken = fill_descriptors()
        refused(lambda: store.add_messages("a", [user("x")]))
        refused(lambda: everturn.open(url, timeout=0.3))
        for scheme in ("redis+cluster", "redis+sentinel", "rediss"):
            other = url.replace("redis", scheme) + ("/service" if "sentinel" in scheme else "")
            refused(lambda other=other: everturn.open(other, timeout=0.3))  # type: ignore[misc]
        for client in clients:
            refused(lambda client=client: everturn.from_client(client, timeout=0.3))  # type: ignore[misc]
        for each in taken:
            each.close()
    asyncio.run(awaited())


def test_a_process_that_may_open_no_more_files_is_told_so(server: ValkeyServer) -> None:
    run(without_descriptors, server.url.removesuffix("/0"))
