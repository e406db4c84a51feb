"""Redis as a Backend: every operation of the protocol, written once for blocking and asynchronous clients.

What an operation does is in the modules beside this one; how commands travel is up to the sender's lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from everturn.backend import ChangeOutcome, ChangeRequest, Erasure, ForkRequest, Order, Query, Reading, Take
from everturn.backends._shared.server_warnings import Examination, Finding
from everturn.backends.redis import (
    changes,
    doctor,
    fork_session,
    listing,
    maintenance,
    open_checks,
    reads,
    transfer,
    verify,
)
from everturn.backends.redis.changes import headless
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import Damaged
from everturn.backends.redis.keys import Names
from everturn.backends.redis.session_state import steadily
from everturn.backends.redis.stored_form import MICROSECONDS
from everturn.backends.redis.transport.blocking_pool import Lines
from everturn.core.codec import EntryRow
from everturn.model import Change, Compaction, Page, Problem
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

T = TypeVar("T")


@contextmanager
def naming(session_id: str) -> Iterator[None]:
    """Make damage that was found by a script, or behind it, the error of this session."""
    try:
        yield
    except Damaged as exc:
        raise headless(session_id, exc.part) from exc


class RedisBackend:
    """Sessions in Redis or Valkey: one server, a master that sentinels name, or a cluster.

    Time is the server's, unless a clock is set: then expiry goes by that, and the server's own comes on top.
    """

    def __init__(self, sender: Sender, namespace: str, also_close: Sequence[Lines] = ()) -> None:
        self._sender = sender
        self._names = Names(namespace)
        self._also_close = also_close
        self._clock: Callable[[], float] | None = None

    @property
    def sender(self) -> Sender:
        """What this backend sends with."""
        return self._sender

    async def findings(self, deadline: float) -> list[Finding]:
        """What is wrong with the servers' settings, for a store that opens and for `doctor`."""
        return await open_checks.findings(self._sender, deadline)

    async def examine(self, deadline: float) -> Examination:
        """All that `doctor` tells of the servers."""
        return await doctor.examine(self._sender, deadline)

    def _now(self) -> str:
        return "" if self._clock is None else str(round(self._clock() * MICROSECONDS))

    async def _steadily(self, work: Callable[..., Awaitable[T]], session_id: str, deadline: float, *more: Any) -> T:
        keys = self._names.keys(session_id)
        return await steadily(work, self._sender, keys, session_id, self._now(), deadline, *more)

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        now = "" if self._clock is None else self._now()
        script, args = changes.call_for(request, now, waits=self._sender.replicas > 0)
        try:
            reply = await self._sender.change(script, self._names.keys(request.session_id), args, now, deadline)
        except Damaged as exc:
            raise headless(request.session_id, exc.part) from exc
        return changes.outcome_of(reply, request.session_id, request.effect)

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        keys = self._names.keys(query.session_id)
        with naming(query.session_id):
            return await reads.read(self._sender, keys, query, take, self._now(), deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        return await self._steadily(reads.latest, session_id, deadline, limit)

    async def sessions(self, prefix: str, limit: int, page: str | None, order: Order, deadline: float) -> Page:
        return await listing.sessions(self._sender, self._names, prefix, limit, page, order, self._now(), deadline)

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        with naming(session_id or ""):
            await listing.find(self._sender, self._names, text, session_id, take, self._now(), deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        with naming(request.source):
            return await fork_session.fork(self._sender, self._names, request, self._now(), deadline)

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        return await self._steadily(transfer.outline, session_id, deadline)

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        keys = self._names.keys(request.session_id)
        with naming(request.session_id):
            return await transfer.portion(self._sender, keys, request, self._now(), deadline)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await transfer.stage(self._sender, self._names, request, deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        with naming(arrival.outline.session_id):
            return await transfer.restore(self._sender, self._names, arrival, self._now(), deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        keys = self._names.keys(session_id)
        return await maintenance.erase(self._sender, keys, session_id, life, self._now(), deadline)

    async def compact(self, session_id: str | None, deadline: float) -> Compaction:
        if session_id is None:
            return maintenance.NOTHING  # what expired is gone: Redis sees to that
        return await self._steadily(maintenance.compact, session_id, deadline)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return await verify.verify_rest(self._sender, self._names, deadline)
        keys = self._names.keys(session_id)
        return await verify.verify_session(self._sender, keys, session_id, self._now(), deadline)

    async def surviving_sessions(self, deadline: float) -> list[str]:
        """The names of all sessions, of damaged ones too, for `verify` and copies to go on with."""
        return await verify.surviving_sessions(self._sender, self._names, deadline)

    async def close(self) -> None:
        for lines in (self._sender.lines, *self._also_close):
            await lines.close()
