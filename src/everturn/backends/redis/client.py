"""Sends scripts and commands to the node that has a session's keys: redirections, missing scripts, replicas, clocks.

Written once for blocking and asynchronous stores: only the transport below waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from everturn.backends._shared.server_clock import ServerClock, UnansweredAttempts
from everturn.backends.redis import errors
from everturn.backends.redis.errors import DamagedPart, Refusal
from everturn.backends.redis.keys import KNOWN, Keys
from everturn.backends.redis.scripts import Script
from everturn.backends.redis.stored_form import MICROSECONDS
from everturn.backends.redis.topology import Topology
from everturn.backends.redis.transport.blocking_pool import Transport, where
from everturn.backends.redis.transport.resp import Command, ScriptCall, prefix_of
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError

ATTEMPT_SHARE = 0.6  # of the time left, for one attempt at a change
MOST_ATTEMPTS = 8  # redirections and reloads of one request
REDIRECTIONS = {"MOVED", "ASK"}
GONE = {"READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING"}  # the node may no longer be the one to ask


class Sender:
    """Sends requests to the right node. A change is acknowledged when as many replicas as `replicas` have it."""

    def __init__(self, transport: Transport, topology: Topology, replicas: int = 0) -> None:
        self.transport = transport
        self.topology = topology
        self.replicas = replicas
        self._prefix_of = lru_cache(KNOWN)(prefix_of)
        self._clocks: dict[Node, ServerClock] = {}
        self._unanswered = UnansweredAttempts()

    async def run(self, script: Script, keys: Keys, args: Sequence[Any], deadline: float) -> Any:
        """Run a script of maintenance. Like a change, it waits for the replicas asked for."""
        (reply,) = await self.send(keys[0], [self._call(script, keys, args)], deadline, change=True)
        return reply

    async def change(self, script: Script, keys: Keys, args: Sequence[Any], now: str, deadline: float) -> bytes:
        """Run a script that begins with _late_requests.lua, and wait for the replicas asked for.

        `now` is its ScriptCall.clock. Returns its answer without the time. Raises MemoryStoreBackendError,
        "not_written", if it came too late.
        """
        answer: bytes
        prefix = self._prefix_of(script, keys)
        node = self.topology.sole or await self.topology.node_for(keys[0], deadline)
        clock = self._clocks.get(node)
        if clock is None or self.replicas or now or _name_of(keys, args) in self._unanswered:
            (answer,) = await self.send(keys[0], [ScriptCall(script, keys, args, prefix, now)], deadline, change=True)
            return answer
        # As `send` does, in one step: every coroutine on the way costs an append some microseconds.
        sent = time.monotonic()
        by = sent + (deadline - sent) * ATTEMPT_SHARE
        issued, not_after = clock.window(sent, by)
        moments = b"%d" % (issued * MICROSECONDS), b"%d" % (not_after * MICROSECONDS)
        call = ScriptCall(script, keys, [*args, *moments], prefix)
        try:
            (reply,) = await self.transport.exchange(node, (call,), by, shared=True)
        except MemoryStoreBackendError as exc:
            if exc.outcome == "unknown":
                self._unanswered.add(_name_of(keys, args), issued, sent=sent, deadline=by)
            if exc.transient:
                self.topology.lost(node)
            raise
        if type(reply) is not Refusal:
            return self._answer(clock, node, reply, sent)
        self._unanswered.add(_name_of(keys, args), issued, sent=sent, deadline=by)
        again = [ScriptCall(script, keys, args, prefix, now)]
        _, (answer,) = await self._retry_refused(node, reply, keys[0], again, deadline, change=True)
        return answer

    def _call(self, script: Script, keys: Keys, args: Sequence[Any]) -> ScriptCall:
        return ScriptCall(script, keys, args, self._prefix_of(script, keys))

    async def _clock_of(self, node: Node, deadline: float) -> ServerClock:
        """Return the node's clock. A new node is asked for its time first: a request says when it was issued."""
        clock = self._clocks.get(node)
        if clock is None:
            sent = time.monotonic()
            try:
                (reply,) = await self.transport.exchange(node, [("TIME",)], deadline)
            except MemoryStoreBackendError as exc:
                if exc.transient:
                    self.topology.lost(node)
                raise errors.held_back(exc) from exc
            if type(reply) is Refusal:
                raise errors.refused(reply, where(node))
            clock = ServerClock()
            clock.learn(int(reply[0]) + int(reply[1]) / MICROSECONDS, sent=sent, received=time.monotonic())
            clock = self._clocks.setdefault(node, clock)
        return clock

    @staticmethod
    def _answer(clock: ServerClock, node: Node, reply: bytes, sent: float) -> bytes:
        """Learn the time that a reply begins with, and return the rest. Raises if that is `late`."""
        time_text, _, answer = reply.partition(b" ")
        clock.learn(int(time_text) / MICROSECONDS, sent=sent, received=time.monotonic())
        if answer.startswith(b"late "):
            raise errors.late(where(node))
        return answer

    async def read(
        self, script: Script, keys: Keys, args: Sequence[Any], more: Sequence[Command], deadline: float
    ) -> list[Any]:
        """Run a script that only reads, and more commands that read, in one round trip. Returns all replies."""
        return await self.send(keys[0], [self._call(script, keys, args), *more], deadline)

    async def read_many(
        self, script: Script, requests: Sequence[tuple[Keys, Sequence[Any]]], deadline: float
    ) -> list[Any]:
        """Run a script that only reads for many sessions: one round trip a node, and one more for each refusal.

        A session of which a part is not as it was written has DamagedPart in place of an answer.
        """
        by_node: dict[Node, list[int]] = {}
        for number, (keys, _) in enumerate(requests):
            by_node.setdefault(await self.topology.node_for(keys[0], deadline), []).append(number)
        replies: list[Any] = [None] * len(requests)
        for node, numbers in by_node.items():
            calls = [ScriptCall(script, *requests[number]) for number in numbers]
            for number, reply in zip(numbers, await self._exchange(node, calls, deadline, change=False), strict=True):
                replies[number] = reply
        for number, (keys, args) in enumerate(requests):
            if isinstance(replies[number], Refusal):
                try:
                    (replies[number],) = await self.read(script, keys, args, (), deadline)
                except DamagedPart as exc:
                    replies[number] = exc
        return replies

    async def send(
        self,
        key: bytes,
        commands: Sequence[Command],
        deadline: float,
        *,
        change: bool = False,
    ) -> list[Any]:
        """Send commands to the node that has `key`. Returns replies. Raises MemoryStoreBackendError if one failed."""
        node = self.topology.sole or await self.topology.node_for(key, deadline)
        replies = await self._exchange(node, commands, deadline, change=change)
        for reply in replies:
            if type(reply) is Refusal:
                node, replies = await self._retry_refused(node, reply, key, commands, deadline, change=change)
                break
        if change and self.replicas and replies[-1] < self.replicas:
            raise errors.lagging(where(node), self.replicas, replies[-1])
        return replies[: len(commands)]

    async def _retry_refused(
        self,
        node: Node,
        refusal: Refusal,
        key: bytes,
        commands: Sequence[Command],
        deadline: float,
        *,
        change: bool,
    ) -> tuple[Node, list[Any]]:
        """Do as a refusal says: load the script, or ask another node. Returns the node that answered, and replies."""
        target: Node | None = None
        asking = False
        commands = [command.again() if isinstance(command, ScriptCall) else command for command in commands]
        for _ in range(MOST_ATTEMPTS - 1):
            if refusal.code == "NOSCRIPT":
                commands = [command.in_full() if isinstance(command, ScriptCall) else command for command in commands]
            elif refusal.code in REDIRECTIONS and self.topology.follows:
                slot, target = _place_in(refusal, node)
                asking = refusal.code == "ASK"
                if not asking:
                    self.topology.moved(slot, target)
            else:
                if refusal.code in GONE:
                    self.topology.lost(node)
                break
            node = target or await self.topology.node_for(key, deadline)
            replies = await self._exchange(
                node, _with_asking(commands) if asking else commands, deadline, change=change
            )
            if asking:
                replies = replies[1 : 2 * len(commands) : 2] + replies[2 * len(commands) :]
            again = next((reply for reply in replies if isinstance(reply, Refusal)), None)
            if again is None:
                return node, replies
            refusal = again
        raise errors.refused(refusal, where(node))

    async def _exchange(self, node: Node, commands: Sequence[Command], deadline: float, *, change: bool) -> list[Any]:
        if change:
            return await self._exchange_changes(node, commands, deadline)
        return await self._exchange_by(node, commands, deadline)

    async def _exchange_changes(self, node: Node, commands: Sequence[Command], deadline: float) -> list[Any]:
        clock = ServerClock()  # not used by calls that have a time of their own
        timed = [command for command in commands if isinstance(command, ScriptCall) and command.clock == ""]
        if timed:
            clock = await self._clock_of(node, deadline)
        # A reply that never comes must not take all the time: the retry finds what the first attempt did.
        now = time.monotonic()
        by = now + (deadline - now) * ATTEMPT_SHARE
        names = [_name_of(command.keys, command.args) for command in timed]
        if any(self._unanswered.hold_back(name, clock, now) for name in names):
            raise errors.behind(where(node))
        # Less than the time left, so that the answer "too few" still arrives.
        wait = ("WAIT", self.replicas, max(1, int((by - now) * 800))) if self.replicas else None
        issued = clock.at(now) if timed else 0.0
        moments = _window(clock, now, by) if timed else (b"", b"")
        sent = [_within(command, moments) for command in commands]
        try:
            replies = await self._exchange_by(node, sent, by, shared=True, wait=wait)
        except MemoryStoreBackendError as exc:
            if exc.outcome == "unknown":
                self._note(names, issued, now, by)
            raise
        if any(type(reply) is Refusal for reply in replies):
            self._note(names, issued, now, by)
        for index, command in enumerate(commands):
            if isinstance(command, ScriptCall) and command.clock is not None and type(replies[index]) is not Refusal:
                replies[index] = self._answer(clock, node, replies[index], now)
                self._unanswered.settle(_name_of(command.keys, command.args))
        return replies

    def _note(self, names: Sequence[Any], issued: float, sent: float, by: float) -> None:
        """Note attempts that were sent and not carried out, as far as is known."""
        for name in names:
            self._unanswered.add(name, issued, sent=sent, deadline=by)

    async def _exchange_by(
        self, node: Node, commands: Sequence[Command], by: float, *, shared: bool = False, wait: Command | None = None
    ) -> list[Any]:
        try:
            return await self.transport.exchange(node, commands, by, shared=shared, wait=wait)
        except MemoryStoreBackendError as exc:
            if exc.transient:
                self.topology.lost(node)
            raise


def _name_of(keys: Keys, args: Sequence[Any]) -> tuple[bytes, Any]:
    """Return a name for all attempts of one change: the first argument of most is the id of their call."""
    return keys[0], args[0] if args else None


def _window(clock: ServerClock, now: float, deadline: float) -> tuple[bytes, bytes]:
    """Return the two moments that _late_requests.lua takes, in microseconds."""
    issued, not_after = clock.window(now, deadline)
    return b"%d" % (issued * MICROSECONDS), b"%d" % (not_after * MICROSECONDS)


def _within(command: Command, moments: tuple[bytes, bytes]) -> Command:
    if not isinstance(command, ScriptCall) or command.clock is None:
        return command
    return command.within(command.clock, b"") if command.clock else command.within(*moments)


def _with_asking(commands: Sequence[Command]) -> list[Command]:
    return [part for command in commands for part in (("ASKING",), command)]


def _place_in(refusal: Refusal, node: Node) -> tuple[int, Node]:
    """Return the slot and the node that MOVED or ASK names: "MOVED 3999 127.0.0.1:6381"."""
    *_, slot, place = refusal.text.split()
    host, _, port = place.rpartition(":")
    return int(slot), (host or node[0], int(port))
