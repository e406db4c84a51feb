"""PostgreSQL as a Backend: every operation of the protocol as one call of a function in the database (schema/*.sql).

Written once, as coroutines: an Executor that never suspends makes it blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

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
    Status,
    Take,
    Where,
)
from everturn.backends._shared import paging
from everturn.backends._shared.read_only import refuse_changes
from everturn.backends._shared.server_clock import REQUEST_LIFE, ServerClock
from everturn.backends._shared.server_warnings import Examination, Finding, say
from everturn.backends.postgres import (
    change_wire,
    compaction,
    doctor,
    errors,
    fork_session,
    listing,
    open_checks,
    reads,
    schema,
    statements,
    transfer,
    verify,
)
from everturn.backends.postgres.arrays import numbers
from everturn.backends.postgres.executor import Executor, Rows, SqlCall
from everturn.backends.postgres.timed_connections import lock_timeout
from everturn.core.codec import EntryRow
from everturn.errors import CorruptEntry, MemoryStoreBackendError
from everturn.model import Change, Compaction, ErasureReceipt, Page, Problem
from everturn.model.health import Health
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

REAP_EVERY = 64  # changes; each reaping step is bounded, so that no writer pays much for expired sessions
STEP = 1000  # rows deleted in one transaction: a session's writers wait no longer than for that
FOUND_AT_ONCE = 100
MOST_BYTES = 1000 * 2**20  # of the entries of one turn: PostgreSQL takes no value of a gigabyte, and libpq dies trying
PATIENCE = 0.5  # seconds that erase waits for readers to go
PREPARED = frozenset({"read", "read_one_kind", "front", "glance", "lease"})  # besides changes: asked at every turn


class PostgresBackend:
    """The protocol's operations over an executor."""

    def __init__(
        self,
        executor: Executor,
        *,
        schema_name: str = "everturn",
        namespace: str = "",
        warnings: bool = True,
        read_only: bool = False,
    ) -> None:
        self._executor = executor
        self._schema = schema_name
        self._namespace = namespace
        self._warnings = warnings
        self._read_only = read_only
        if read_only:
            refuse_changes(self, executor.name)
        self._sql = statements.load("calls.sql", schema_name)
        self._clock: Callable[[], float] | None = None  # None: the server's; tests bring their own
        self._server_clock = ServerClock()
        self._knows_time = False
        self._latest = 0.0
        self._until_reaping = REAP_EVERY
        self._reaping = False
        self._compactions: dict[str, compaction.CompactionPlan] = {}  # of sessions that are being compacted
        self._ready = False
        self._closed = False

    # --- calls -------------------------------------------------------------------------------------------------------

    async def prepare(self, deadline: float) -> None:
        """Check the server, warn of dangerous settings, and create or migrate the schema. Before the first call."""
        found = await self.findings(deadline)
        if self._read_only:
            await schema.refuse_pending(self._executor, self._schema, deadline)
        else:
            await schema.migrate(self._executor, self._schema, deadline)
        if time.monotonic() < deadline:  # else the first change asks
            await self._ask_time(deadline)
        is_first, self._ready = not self._ready, True
        if self._warnings and is_first:  # else another task of the same loop was faster
            say(found, "postgres")

    async def findings(self, deadline: float) -> list[Finding]:
        """Find settings of the server that break promises, for `prepare` and for `doctor`."""
        return await open_checks.findings(self._executor, deadline)

    async def examine(self, deadline: float) -> Examination:
        """Examine the server for `doctor`."""
        return await doctor.examine(self._executor, self._schema, deadline)

    async def health(self, deadline: float) -> Health:
        """Ask the server whether it takes writes, for its replicas, and for work that is under way."""
        work = SqlCall(self._sql["open_work"], (self._now(), self._namespace, open_checks.MOST_ROWS))
        return await open_checks.health(self._executor, work, deadline)

    async def _ask(self, name: str, parameters: tuple[Any, ...], deadline: float, *, writes: bool = False) -> Rows:
        if not self._ready:
            await self.prepare(deadline)
        sent = time.monotonic()
        try:
            return await self._executor.run(SqlCall(self._sql[name], parameters, writes, name in PREPARED), deadline)
        except errors.Late as late:
            self._learn(late.told, sent)
            raise

    def _now(self) -> float | None:
        """The time of a test's clock, which never runs backwards. None: the server tells the time."""
        if self._clock is None:
            return None
        self._latest = max(self._latest, self._clock())
        return self._latest

    # --- late requests -----------------------------------------------------------------------------------------------

    def _window(self, deadline: float) -> change_wire.RequestWindow:
        """The window of a request that is sent now. (07-late-requests.sql says what it is for.)"""
        now = time.monotonic()
        given = self._now()
        if given is None:
            return change_wire.RequestWindow(*self._server_clock.window(now, deadline), now)
        return change_wire.RequestWindow(given, given + min(max(0.0, deadline - now), REQUEST_LIFE), now)

    async def _first_window(self, deadline: float) -> change_wire.RequestWindow:
        """The window of a request that may be the first of all."""
        if not self._knows_time:
            await self._make_ready(deadline)
        return self._window(deadline)

    async def _make_ready(self, deadline: float) -> None:
        """Prepare for changes: there is a schema, and the server's clock is known."""
        if not self._ready:
            await self.prepare(deadline)
        if not self._knows_time:
            await self._ask_time(deadline)

    async def _ask_time(self, deadline: float) -> None:
        sent = time.monotonic()
        ((told,),) = await self._executor.run(SqlCall(self._sql["time"]), deadline)
        self._server_clock.learn(told, sent=sent, received=time.monotonic())
        self._knows_time = True

    def _learn(self, told: float, sent: float) -> None:
        """Take in the time that a reply told."""
        if self._clock is None:
            self._server_clock.learn(told, sent=sent, received=time.monotonic())

    # --- changes -----------------------------------------------------------------------------------------------------

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        size = change_wire.size_of(request)
        if size > MOST_BYTES:
            raise errors.too_large(self._executor.name, size, MOST_BYTES)
        sent = time.monotonic()
        try:
            outcome = await self._changed(request, deadline)
        except errors.Late as late:
            self._learn(late.told, sent)
            raise
        self._until_reaping -= 1
        if self._until_reaping <= 0 and not self._reaping:
            self._until_reaping = REAP_EVERY
            await self._reap_quietly(deadline)
        return outcome

    async def _changed(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        if not self._knows_time:
            await self._make_ready(deadline)
        window = self._window(deadline)
        call = self._change_call([request], [window], deadline - window.sent)
        (row,) = await self._executor.run(call, deadline)
        return self._outcome(request, row, window.sent)

    def _change_call(
        self, changes: Sequence[ChangeRequest], windows: Sequence[change_wire.RequestWindow], patience: float
    ) -> SqlCall:
        ends = numbers([window.not_after for window in windows])
        limits = (lock_timeout(patience), windows[0].issued, ends, self._now())  # issued: the earliest of all
        parameters = (self._namespace, *change_wire.encode(changes, windows), *limits)
        return SqlCall(self._sql["change"], parameters, writes=True, prepares=True)

    def _outcome(self, request: ChangeRequest | ForkRequest, row: Any, sent: float) -> ChangeOutcome:
        """Read the outcome of a change from a row of outcome_v1. Raises Late."""
        outcome, told = change_wire.answer(request, row)
        self._learn(told, sent)
        if outcome is None:
            raise errors.Late(self._executor.name, told)
        return outcome

    def _outcomes(self, changes: Sequence[ChangeRequest], rows: Rows, sent: float) -> list[ChangeOutcome | errors.Late]:
        """Read the outcomes of changes from their rows. The clock is learnt first: callers go on at once."""
        answers = [change_wire.answer(change, row) for change, row in zip(changes, rows, strict=True)]
        self._learn(max(told for _, told in answers), sent)
        return [errors.Late(self._executor.name, told) if outcome is None else outcome for outcome, told in answers]

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        issued, not_after, sent = await self._first_window(deadline)
        limits = (lock_timeout(deadline - sent), issued, not_after, self._now())
        asked = (request.session_id, request.action, request.holder, request.token, request.seconds)
        rows = await self._ask("lease", (self._namespace, *asked, *limits), deadline, writes=True)
        ((status, token, until, left, told),) = rows
        self._learn(told, sent)
        return LeaseOutcome(Status(status), token, until, left)

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        rows = await self._ask("held_lease", (self._namespace, session_id, self._now()), deadline)
        return LeaseReading(*rows[0]) if rows else None

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        return change_wire.effects_in(await self._ask("effects", (self._namespace, session_id, self._now()), deadline))

    async def _reap_quietly(self, deadline: float) -> None:
        self._reaping = True  # one at a time: it is a favour, and must not crowd out those who asked for something
        try:
            await self._ask("reap", (STEP, self._now()), deadline, writes=True)
        except MemoryStoreBackendError:
            pass  # the change itself is kept; the next writer tries again
        finally:
            self._reaping = False

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        copy = fork_session.ForkProgress(request, time.monotonic(), deadline)
        while True:
            window = await self._first_window(deadline)
            limits = (lock_timeout(deadline - window.sent), self._now())
            parameters = (self._namespace, *copy.parameters(window), *limits)
            (row,) = await self._ask("fork", parameters, deadline, writes=True)
            if copy.is_settled(row, window.sent, time.monotonic()):
                return self._outcome(request, row, window.sent)
            self._learn(row[-1], window.sent)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        if query.is_glance:
            parameters = (self._namespace, query.session_id, self._now())
            return reads.glance(await self._ask("glance", parameters, deadline), query.session_id)
        name = "front" if query.front else "read" if query.kind is None else "read_one_kind"
        rows = await self._ask(name, (self._namespace, *reads.parameters(query), self._now()), deadline)
        try:
            return reads.reading(rows, take, query)
        except reads.Miscounted:
            counting = (self._namespace, *reads.parameters(query, counts=True), self._now())
        return reads.reading(await self._ask(name, counting, deadline), take, query)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        return reads.changes(await self._ask("changes", (self._namespace, session_id, limit, self._now()), deadline))

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        token = paging.token_of(page, order)
        if token.by_change and token.is_first:
            ((began,),) = await self._ask("began", (self._now(),), deadline)
            token = paging.begun(token, began)
        name, parameters = listing.call_for(prefix, where, token)
        rows = await self._ask(name, (self._namespace, *parameters, limit, self._now()), deadline)
        return listing.page_in(rows, token, limit)

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        pattern, before = paging.pattern_for(text), (listing.LAST, listing.LAST)
        while True:
            parameters = (self._namespace, session_id, pattern, *before, FOUND_AT_ONCE, self._now())
            rows = await self._ask("find", parameters, deadline)
            for no, found_in, *row in rows:
                if not take(found_in, tuple(row)):
                    return
                before = (no, row[0])
            if len(rows) < FOUND_AT_ONCE:
                return

    # --- copies ------------------------------------------------------------------------------------------------------

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        return transfer.outline_in(await self._ask("outline", (self._namespace, session_id, self._now()), deadline))

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        parameters = (self._namespace, *transfer.portion_parameters(request), self._now())
        return transfer.portion_in(await self._ask("portion", parameters, deadline), request)

    async def stage(self, request: Staging, deadline: float) -> str | None:
        issued, not_after, _ = await self._first_window(deadline)
        parameters = (self._namespace, *transfer.stage_parameters(request), issued, not_after, self._now())
        ((no,),) = await self._ask("stage", parameters, deadline, writes=True)
        return None if no is None else str(no)

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        issued, not_after, sent = await self._first_window(deadline)
        limits = (lock_timeout(deadline - sent), issued, not_after, self._now())
        parameters = (self._namespace, *transfer.restore_parameters(arrival), *limits)
        rows = await self._ask("restore", parameters, deadline, writes=True)
        self._learn(rows[0][-1], sent)
        return transfer.restored(rows)

    # --- maintenance -------------------------------------------------------------------------------------------------

    async def erase(self, session_id: str, life: str | None, deadline: float, *, version: int | None = None) -> Erasure:
        issued, not_after, sent = await self._first_window(deadline)
        limits = (STEP, lock_timeout(deadline - sent), issued, not_after, self._now())
        named = (self._namespace, session_id)
        if version is None:
            (row,) = await self._ask("erase", (*named, life, *limits), deadline, writes=True)
        else:
            values = (*named, version, *named, life, *limits)
            (row,) = await self._ask("erase_at_version", values, deadline, writes=True)
        entries, snapshots, size, xid, spared, told, is_left = row
        self._learn(told, sent)
        is_seen = True
        with suppress(MemoryStoreBackendError):  # nobody can read the session any more; the rest is told by `complete`
            while is_left and time.monotonic() < deadline:
                (row,) = await self._ask("erase_more", (self._namespace, session_id, STEP), deadline, writes=True)
                entries, snapshots, size = entries + row[0], snapshots + row[1], size + row[2]
                xid, is_left = row[3:]
            is_seen = is_left or await self._is_seen_for_long(xid, deadline)
        return Erasure(ErasureReceipt(session_id, entries, snapshots, size, not is_seen, compaction.LEFTOVERS), spared)

    async def _is_seen_for_long(self, xid: str, deadline: float) -> bool:
        """Whether a transaction that began earlier goes on, and may see rows that this one removed."""
        until = min(deadline, time.monotonic() + PATIENCE)
        while True:
            ((is_seen,),) = await self._ask("is_still_seen", (xid,), deadline)
            if not is_seen or time.monotonic() + 0.01 >= until:
                return bool(is_seen)
            await self._pause(0.01)

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - here nothing suspends

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        if session_id is None:
            (row,) = await self._ask("reap", (STEP, self._now()), deadline, writes=True)
            return Compaction(*row[:3])
        if drop_undo:
            await self._drop_undo(session_id, deadline)
        plan = self._compactions.pop(session_id, None)
        if plan is None or plan.is_done:
            ((told,),) = await self._ask("survey", (self._namespace, session_id, self._now()), deadline)
            later = compaction.plan(session_id, told) if told else None
            if later is None or later.is_done or (plan is not None and plan.is_enough(later)):
                return Compaction(0, 0, 0)
            later.rounds += 0 if plan is None else plan.rounds
            plan = later
        limits = (compaction.STEP, lock_timeout(deadline - time.monotonic()), self._now())
        parameters = (self._namespace, session_id, plan.no, plan.next_step(), *limits)
        (row,) = await self._ask("compact", parameters, deadline, writes=True)
        done = plan.made(row)
        if done.sessions:
            self._compactions[session_id] = plan  # also when nothing is left to do: the next call says so
        return done

    async def _drop_undo(self, session_id: str, deadline: float) -> None:
        issued, not_after, sent = await self._first_window(deadline)
        limits = (lock_timeout(deadline - sent), issued, not_after, self._now())
        ((told,),) = await self._ask("drop_undo", (self._namespace, session_id, *limits), deadline, writes=True)
        self._learn(told, sent)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        if session_id is None:
            orphans = await self._ask("orphans", (), deadline)
            return 0, [Problem(None, None, what) for (what,) in orphans]
        try:
            rows = await self._ask("verify", (self._namespace, session_id, self._now()), deadline)
        except CorruptEntry as exc:
            return 0, [Problem(session_id, None, str(exc))]
        return verify.problems_in(session_id, rows)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._executor.close()
