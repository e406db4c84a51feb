"""RedisBackend: every operation of everturn.backend.Backend, written once for blocking and asynchronous stores.

Each operation is carried out by a module beside this one. The transport below decides whether a call blocks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from everturn.backend import (
    ChangeOutcome,
    ChangeRequest,
    EffectsReading,
    Erasure,
    ForkRequest,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    Order,
    Query,
    Reading,
    Take,
    Where,
)
from everturn.backends._shared.server_warnings import Examination, Finding
from everturn.backends.redis import (
    changes,
    doctor,
    effects,
    fork_session,
    listing,
    maintenance,
    open_checks,
    reads,
    transfer,
    verify,
)
from everturn.backends.redis.changes import damaged_session
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart
from everturn.backends.redis.keys import KeyNames
from everturn.backends.redis.session_state import retry_across_lives
from everturn.backends.redis.stored_form import MICROSECONDS
from everturn.backends.redis.transport.blocking_pool import Transport
from everturn.core.codec import EntryRow
from everturn.model import Change, Compaction, Page, Problem
from everturn.model.health import Health
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

T = TypeVar("T")


@contextmanager
def corrupt_if_damaged(session_id: str) -> Iterator[None]:
    """Turn DamagedPart into CorruptEntry of this session."""
    try:
        yield
    except DamagedPart as exc:
        raise damaged_session(session_id, exc.part) from exc


class RedisBackend:
    """Sessions in Redis or Valkey: one server, a master that sentinels name, or a cluster.

    Time is the server's. If a clock is set, for tests, sessions expire by that, and by the server's, too.
    """

    def __init__(self, sender: Sender, namespace: str, also_close: Sequence[Transport] = ()) -> None:
        self._sender = sender
        self._names = KeyNames(namespace)
        self._also_close = also_close
        self._clock: Callable[[], float] | None = None

    @property
    def sender(self) -> Sender:
        """Return the sender of this backend."""
        return self._sender

    async def findings(self, deadline: float) -> list[Finding]:
        """Return settings of the servers that may lose turns, for a store that opens and for `doctor`."""
        return await open_checks.findings(self._sender, deadline)

    async def examine(self, deadline: float) -> Examination:
        """Return the facts and findings that `doctor` tells of the servers."""
        return await doctor.examine(self._sender, deadline)

    def _now(self) -> str:
        return "" if self._clock is None else str(round(self._clock() * MICROSECONDS))

    async def _across_lives(self, work: Callable[..., Awaitable[T]], session_id: str, deadline: float, *more: Any) -> T:
        keys = self._names.keys(session_id)
        return await retry_across_lives(work, self._sender, keys, session_id, self._now(), deadline, *more)

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        now = "" if self._clock is None else self._now()
        script, args = changes.call_for(request, waits=self._sender.replicas > 0)
        try:
            reply = await self._sender.change(script, self._names.keys(request.session_id), args, now, deadline)
            return changes.outcome_of(reply, request.session_id, request.action)
        except DamagedPart as exc:
            raise damaged_session(request.session_id, exc.part) from exc

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        keys = self._names.keys(request.session_id)
        with corrupt_if_damaged(request.session_id):
            return await effects.apply_lease(self._sender, keys, request, self._now(), deadline)

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        with corrupt_if_damaged(session_id):
            return await effects.held_lease(self._sender, self._names.keys(session_id), self._now(), deadline)

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        with corrupt_if_damaged(session_id):
            return await effects.read(self._sender, self._names.keys(session_id), self._now(), deadline)

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        keys = self._names.keys(query.session_id)
        with corrupt_if_damaged(query.session_id):
            return await reads.read(self._sender, keys, query, take, self._now(), deadline)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        return await self._across_lives(reads.latest_changes, session_id, deadline, limit)

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        wanted = listing.PageRequest(prefix, where or {}, limit)
        return await listing.sessions(self._sender, self._names, wanted, page, order, self._now(), deadline)

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        with corrupt_if_damaged(session_id or ""):
            await listing.find(self._sender, self._names, text, session_id, take, self._now(), deadline)

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        with corrupt_if_damaged(request.source):
            return await fork_session.fork(self._sender, self._names, request, self._now(), deadline)

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        return await self._across_lives(transfer.outline, session_id, deadline)

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        keys = self._names.keys(request.session_id)
        with corrupt_if_damaged(request.session_id):
            return await transfer.portion(self._sender, keys, request, self._now(), deadline)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        return await transfer.stage(self._sender, self._names, request, self._now(), deadline)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        with corrupt_if_damaged(arrival.outline.session_id):
            return await transfer.restore(self._sender, self._names, arrival, self._now(), deadline)

    async def health(self, deadline: float) -> Health:
        """Ask every master for its role, its last writes to disk, and its replicas."""
        return await open_checks.health(self.sender, deadline)

    async def erase(self, session_id: str, life: str | None, deadline: float, *, version: int | None = None) -> Erasure:
        keys = self._names.keys(session_id)
        return await maintenance.erase(self._sender, keys, session_id, life, self._now(), deadline, version)

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        if session_id is None:
            return maintenance.NOTHING  # Redis removes expired sessions by itself
        if drop_undo:
            with corrupt_if_damaged(session_id):
                await maintenance.drop_undo(self._sender, self._names.keys(session_id), self._now(), deadline)
        return await self._across_lives(maintenance.compact, session_id, deadline)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            return await verify.verify_rest(self._sender, self._names, deadline)
        keys = self._names.keys(session_id)
        return await verify.verify_session(self._sender, keys, session_id, self._now(), deadline)

    async def surviving_sessions(self, deadline: float) -> list[str]:
        """Return the ids of all sessions, also of damaged ones, for `verify` and copies."""
        return await verify.surviving_sessions(self._sender, self._names, deadline)

    async def close(self) -> None:
        for transport in (self._sender.transport, *self._also_close):
            await transport.close()
