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
from types import FrameType
from typing import Any

import pytest
import redis

import everturn
from everturn import MemoryStoreBackendError
from everturn.backends.redis import stored_form
from everturn.testing.servers import ValkeyServer, valkey_server
from tests.integration.children import run
from tests.integration.stepping import walk
from tests.store.speech import user

PAUSED, LIVE = 20, 150  # rounds
STRIDE = 31  # steps of a call, of which one is tried; which ones differs from kind to kind


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
        self.was_ours = False
        self._kind = kind
        signal.signal(signal.SIGALRM, self)

    def __call__(self, _signal: int, frame: FrameType | None) -> None:
        self.has_rung = True
        self.was_ours = frame is not None and frame.f_code.co_filename.startswith(everturn.__path__[0])
        self.error = self._kind("the handler's own")
        raise self.error

    def became(self, call: Any, seconds: float) -> str:
        """What becomes of a call when the alarm rings so much later: `in time`, `raised` or `swallowed`.

        Or `a driver's`: it rang within redis-py or a module of Python's. Who swallows it there is looked at by
        test_at_every_step_of_a_call.
        """
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
                return self._lost() if self.has_rung else "failed"
            raise
        return self._lost() if self.has_rung else "in time"

    def _lost(self) -> str:
        return "swallowed" if self.was_ours else "a driver's"


def opened(url: str, client: str) -> Any:
    if client == "own":
        return everturn.open(url, timeout=1.0, warnings=False)
    return everturn.from_client(redis.Redis.from_url(url, socket_timeout=1.0), timeout=1.0, warnings=False)


def storm(kind: str, client: str) -> None:
    dice = random.Random(11)
    alarm = Alarm(RAISED[kind])
    sys.unraisablehook = lambda _: None  # Python itself ignores what is raised in a `__del__`
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
        assert set(paused) <= {"raised", "a driver's"}, paused
        assert paused["raised"] > PAUSED / 2, paused
        if client == "own":  # a pool of redis-py's own keeps some to itself
            live: Counter[str] = Counter()
            # How long a call takes, and so how many are interrupted, depends on the machine: until enough were.
            for number in range(40 * LIVE):
                live[alarm.became(work, dice.uniform(0.00005, 0.003))] += 1
                if number >= LIVE and live["raised"] > LIVE / 10:
                    break
            assert set(live) <= {"raised", "in time", "a driver's"}, live
            assert live["raised"] > live["a driver's"], live
        work()
        assert store.verify().ok


@pytest.mark.parametrize(
    ("kind", "client"), [*((kind, "own") for kind in RAISED), ("soft", "borrowed"), ("timeout", "borrowed")]
)
def test_what_a_handler_raises_reaches_the_caller(kind: str, client: str) -> None:
    run(storm, kind, client)


def every_step(kind: str) -> None:
    with valkey_server() as server, opened(server.url, "own") as store:
        transport = store._operations.backend.sender.transport

        def work() -> None:
            store.add_messages("a", [user("x")])
            store.get_history("a", limit=1)

        def disconnect() -> None:
            work()
            for connection in [place.item for pool in transport._nodes.values() for place in pool._pool._idle]:
                connection.disconnect()

        walk(RAISED[kind], work, work, STRIDE)
        walk(RAISED[kind], work, disconnect, STRIDE)
        work()
        assert store.verify().ok


@pytest.mark.parametrize("kind", RAISED)
def test_at_every_step_of_a_call(kind: str) -> None:
    run(every_step, kind)


def every_step_of_reading() -> None:
    """A ValueError is what rows that cannot be read raise, too."""
    values = [stored_form.entry_value(seq, 1, 10, 5, b"body") for seq in (1, 2)]
    for call in (
        lambda: stored_form.message_columns([1, 2], values),
        lambda: stored_form.message_row(1, values[0]),
        lambda: stored_form.seqs_of([b"1-0", b"2-0"]),
    ):
        walk(ValueError, call, call, 1)


def test_at_every_step_of_reading_rows() -> None:
    run(every_step_of_reading)


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
        transport = store._operations.backend.sender.transport  # type: ignore[attr-defined]  # Redis's
        for pool in transport._connections.values():
            await pool.close()
            pool._closed = False
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
        store._operations.backend.sender.transport._nodes.clear()  # type: ignore[attr-defined]  # Redis's
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
