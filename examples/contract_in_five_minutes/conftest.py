"""A store for each test, blocking and awaited, over a Redis that is a Python object: no server, no network, no sleeps.

To test a store of your own, change `open_store`.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest
import redis

import everturn


def open_store(client, **options):
    """The store under test, over a client that is blocking or asynchronous."""
    return everturn.from_client(client, **options)


class Memory:
    """A store that a test calls in one way, whether its methods block or are awaited."""

    def __init__(self, kind, server, runner, monkeypatch):
        self.kind, self.server, self.runner, self.monkeypatch = kind, server, runner, monkeypatch
        self.redis = fakeredis.FakeRedis(server=server)  # a way in that does not pass through the store
        self.store = None

    def open(self, **options):
        """A store on the same Redis, with these options."""
        other = Memory(self.kind, self.server, self.runner, self.monkeypatch)
        other.store = self.runner.run(other._open(**options))
        return other

    async def _open(self, **options):
        kind = fakeredis.FakeRedis if self.kind == "blocking" else fakeredis.FakeAsyncRedis
        self.client = kind(server=self.server)
        return open_store(self.client, **options)

    def __getattr__(self, name):
        method = getattr(self.store, name)
        if self.kind == "blocking":
            return method
        return lambda *args, **options: self.runner.run(method(*args, **options))

    def at_once(self, calls):
        """Make these calls, each (method, arguments...), at the same time: in threads, or as tasks of one loop.

        Returns what each returned, or the error that it raised.
        """

        async def tasks():
            awaited = [getattr(self.store, name)(*args) for name, *args in calls]
            return await asyncio.gather(*awaited, return_exceptions=True)

        def outcome(call):
            name, *args = call
            try:
                return getattr(self.store, name)(*args)
            except everturn.MemoryStoreError as exc:
                return exc

        if self.kind == "awaited":
            return self.runner.run(tasks())
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(outcome, calls))

    # --- what happens to a Redis -------------------------------------------------------------------------------------

    def fail(self):
        """Make the client raise redis.ConnectionError from now on."""
        self.server.connected = False

    def recover(self):
        self.server.connected = True

    def lose_next_reply(self):
        """Lose the reply to the next request, after the server has carried it out."""
        connection = self.client.connection_pool.connection_class
        read = connection.read_response
        lost = []

        def lose_first(self, *args, **options):
            if lost:
                return read(self, *args, **options)
            lost.append("a reply")
            raise redis.ConnectionError("connection reset by peer")

        async def lose_first_awaited(self, *args, **options):
            return await lose_first(self, *args, **options)

        lose = lose_first if self.kind == "blocking" else lose_first_awaited
        self.monkeypatch.setattr(connection, "read_response", lose)

    def wait(self, seconds):
        """Let time pass, without waiting for it."""
        now = time.time
        self.monkeypatch.setattr(time, "time", lambda: now() + seconds)

    def words(self, session):
        """The texts of a session, oldest first."""
        return [message.content for message in self.get_history(session)]


@pytest.fixture(params=["blocking", "awaited"])
def memory(request, monkeypatch):
    with asyncio.Runner() as runner:
        memory = Memory(request.param, fakeredis.FakeServer(), runner, monkeypatch).open(ttl=3600)
        yield memory
        memory.close()
