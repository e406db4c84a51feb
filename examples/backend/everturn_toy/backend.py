"""The operations of a Backend: each is one critical section. None of them waits for anything but the lock."""

# ruff: noqa: ARG002 - nothing here waits, so that no deadline is needed
from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from everturn.backend import (
    FRONT_ENTRIES,
    FRONT_SUMMARIES,
    REMEMBERED,
    BeginEffect,
    ChangeOutcome,
    ChangeRequest,
    EffectsReading,
    EndEffect,
    EntryRow,
    Erasure,
    Fork,
    ForkRequest,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    LeaseRow,
    Order,
    Query,
    Reading,
    State,
    Status,
    StoredEffect,
    Take,
    Where,
    change_lease,
    checksum,
    contains,
    decode,
    has_facts,
    is_fenced_off,
    is_held,
    path,
    plan_change,
    reading_of,
)
from everturn.errors import CorruptEntry, InvalidInput, MemoryStoreBackendError
from everturn.model import MESSAGE, SUMMARY, Change, Compaction, ErasureReceipt, Page, Problem, Snapshot
from everturn_toy.apply_plan import LifeReader, write
from everturn_toy.stored import Entry, Life, Log, Memory, Remembered, seqs_of, shown


class ToyBackend:
    """The sessions of one namespace in a Memory."""

    def __init__(self, memory: Memory, namespace: str) -> None:
        self._memory = memory
        self._namespace = namespace
        self._clock: Callable[[], float] = time.time
        self._is_closed = False

    def _live(self, session_id: str) -> Life | None:
        """Find the present life of a session; None if there is none, or it has expired."""
        if self._is_closed:
            raise MemoryStoreBackendError("this store is closed", outcome="not_written")
        life = self._memory.lives.get((self._namespace, session_id))
        return None if life is None or _is_over(life, self._clock()) else life

    def _keep(self, life: Life, log: Log, request: ChangeRequest, seqs: Iterable[int], now: float) -> ChangeOutcome:
        """Record the change, and make the life visible in place of the one before it."""
        action = request.action
        life.version += 1
        life.changed_at = now
        life.expires_at = None if life.ttl is None else now + life.ttl
        snapshot, label = getattr(action, "snapshot_id", None), getattr(action, "label", None)
        named = (request.call, request.key, request.content, snapshot, label)
        change = Remembered(life.version, action.kind, tuple(seqs), now, *named, life.state)
        life.changes.append(change)
        name = (self._namespace, life.session_id)
        if name in self._memory.lives:
            self._memory.logs.pop(self._memory.lives[name].life, None)
        self._memory.lives[name], self._memory.logs[life.life] = life, log
        lease = self._memory.leases.get(name)
        if lease is not None and not lease.life:  # it was taken before the life began, and ends with it
            self._memory.leases[name] = replace(lease, life=life.life)
        return _receipt(Status.APPLIED, life, change)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        with self._memory.lock:
            found, now = self._live(request.session_id), self._clock()
            if found is not None and (again := _recalled(found, request)) is not None:
                return again
            if not _is_expected(found, request):
                return _refusal(Status.CONFLICT, found)
            if request.lease and is_fenced_off(request.lease, self._lease(request.session_id), _name_of(found), now):
                return _refusal(Status.LEASE_LOST, found)
            life = found.copy() if found else Life(request.session_id, request.life, request.ttl, now)
            log = dict(self._memory.logs.get(life.life, {}))
            plan = plan_change(found, request.action, LifeReader(life, log))
            if isinstance(plan, Status):
                return self._with_effect(_refusal(plan, found), found, request.action)
            write(life, log, request.action, plan, now)
            written = range(life.last_seq + 1 - len(plan.drafts), life.last_seq + 1)
            outcome = self._keep(life, log, request, written, now)
            return self._with_effect(outcome, life, request.action)

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        with self._memory.lock:
            life = _name_of(self._live(request.session_id))
            outcome, row = change_lease(request, self._lease(request.session_id), life, self._clock())
            if row is not None:
                self._memory.leases[self._namespace, request.session_id] = row
            return outcome

    def _lease(self, session_id: str) -> LeaseRow | None:
        return self._memory.leases.get((self._namespace, session_id))

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        with self._memory.lock:
            return reading_of(self._lease(session_id), _name_of(self._live(session_id)), self._clock())

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        with self._memory.lock:
            life = self._live(session_id)
            if life is None:
                return EffectsReading()
            rows = sorted(life.effects.values(), key=lambda row: row.began)
            return EffectsReading(life.life, life.version, tuple(self._held(row, life) for row in rows))

    def _held(self, row: StoredEffect, life: Life) -> StoredEffect:
        """Say whether the lease is held that the effect was begun under."""
        lease = self._lease(life.session_id)
        is_so = row.token > 0 and lease is not None and lease.token == row.token
        return replace(row, held=is_so and is_held(lease, life.life, self._clock()))

    def _with_effect(self, outcome: ChangeOutcome, life: Life | None, action: object) -> ChangeOutcome:
        """Add the row of the effect that was to begin or end to the answer."""
        row = life.effects.get(action.key) if life and isinstance(action, BeginEffect | EndEffect) else None
        return outcome if row is None or life is None else replace(outcome, effect=self._held(row, life))

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        with self._memory.lock:
            target, source, now = self._live(request.target), self._live(request.source), self._clock()
            digests = (request.key, request.content)
            birth = ChangeRequest(request.target, Fork(), request.call, request.ttl, *digests, retry=request.retry)
            if target is not None:
                return _recalled(target, birth) or _refusal(Status.EXISTS, target)
            if not _is_expected(source, request):
                return _refusal(Status.CONFLICT, source)
            if source is None:
                return ChangeOutcome(Status.NO_SESSION)
            state = source.state_at(request.at)
            if isinstance(state, Status):
                return _refusal(state, source)
            log = self._memory.logs[source.life]
            must, summaries = shown(source, log, state)
            copied = {seq: log[seq] for seq in sorted([*must, *summaries]) if seq in log}
            life = Life(request.target, birth.life, request.ttl, now, forked_from=request.source)
            life.state, life.last_seq, life.dimension = state, state.head, source.dimension
            life.facts = source.facts
            life.jumps = [jump for jump in source.jumps if jump[0] <= state.head]
            life.bytes = sum(len(entry.body) for entry in copied.values())
            return self._keep(life, copied, birth, (), now)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        with self._memory.lock:
            life = self._live(query.session_id)
            if life is None:
                return Reading(Status.NO_SESSION)
            state = life.state_at(query.at)
            if isinstance(state, Status):
                return Reading(state, life.info)
            snapshots = tuple(snapshot for snapshot, _ in life.snapshots.values()) if query.snapshots else ()
            if query.limit == 0:
                return Reading(Status.FOUND, life.info, state, snapshots)
            log = self._memory.logs.get(life.life, {})
            before = state.head + 1 if query.before is None else query.before
            must, summaries = ([s for s in part if query.after < s < before] for part in shown(life, log, state))
            messages = [seq for seq in must if seq in log and log[seq].kind == MESSAGE]
            cut = query.limit is not None and len(messages) > query.limit
            start = messages[-query.limit] if cut and query.limit else 0
            front = [seq for seq in must if seq < start][: len(state.kept) + FRONT_ENTRIES] if query.front else []
            must, summaries = ([seq for seq in part if seq >= start] for part in (must, summaries))
            must = front + must
            there = [seq for seq in sorted([*must, *summaries]) if seq in log and query.kind in (None, log[seq].kind)]
            handed = set(there)
            wrong = (seq for seq in must if seq not in log or (seq not in handed and _is_damaged(log[seq])))
            rows = [_row(seq, log[seq]) for seq in there]
            turns = [row[5] for row in rows] if query.front else ()
            standing = _latest_summaries(life, log, state) if query.front else ()
        if rows:
            take(rows if query.kind is None else [row[:4] for row in rows])
        return Reading(Status.FOUND, life.info, state, snapshots, next(wrong, 0), cut, turns, standing)

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        with self._memory.lock:
            life = self._live(session_id)
            latest = list(reversed(life.changes))[:limit] if life else []
        return [
            Change(
                *(change.version, change.kind, change.seqs, change.created_at, change.snapshot, change.label),
                key=change.key.hex() if change.key else None,
            )
            for place, change in enumerate(latest)
            if change.version == latest[0].version - place  # of older ones, only keys are remembered
        ]

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        """List a page. Its token holds the names that were listed so far: long, but no session is missed."""
        listed = [] if page is None else _read_token(page, order)
        with self._memory.lock:
            names = [name for namespace, name in self._memory.lives if namespace == self._namespace]
            found = [life.info for name in names if name.startswith(prefix) and (life := self._live(name))]
        found = [info for info in found if has_facts(info.facts, where or {})]
        found = sorted((info for info in found if info.session_id not in listed), key=lambda x: x.session_id.encode())
        if order == "recent":
            found.sort(key=lambda info: -info.changed_at)
        elif listed:
            found = [info for info in found if info.session_id.encode() > listed[-1].encode()]
        now = [info.session_id for info in found[:limit]]
        token = json.dumps([order, [*listed, *now] if order else now[-1:]])
        more = len(found) > limit
        return Page(tuple(found[:limit]), urlsafe_b64encode(token.encode()).decode() if more else None)

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        """Hand over every visible entry: `take` looks closer."""
        with self._memory.lock:
            names = [name for namespace, name in self._memory.lives if namespace == self._namespace]
            wanted = [name for name in names if session_id in (None, name)]
            rows = []
            for name in wanted:
                if (life := self._live(name)) is not None:
                    log = self._memory.logs[life.life]
                    must, summaries = shown(life, log, life.state)
                    seqs = sorted([*must, *summaries], reverse=True)
                    rows += [(name, _row(seq, log[seq])) for seq in seqs if seq in log]
        for name, row in rows:
            if not take(name, row):
                return

    # --- maintenance -------------------------------------------------------------------------------------------------

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        with self._memory.lock:
            living = self._live(session_id)
            is_another = living is not None and life not in (None, living.life)
            if not is_another:
                self._memory.leases.pop((self._namespace, session_id), None)
            gone = None if is_another else self._memory.lives.pop((self._namespace, session_id), None)
            if gone is None:
                return Erasure(ErasureReceipt(session_id, 0, 0, 0, complete=True), spared=is_another)
            log = self._memory.logs.pop(gone.life, {})
            size = sum(len(entry.body) for entry in log.values())
            return Erasure(ErasureReceipt(session_id, len(log), len(gone.snapshots), size, complete=True))

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        with self._memory.lock:
            if session_id is None:
                return self._reap()
            life = self._live(session_id)
            if life is None:
                return Compaction(0, 0, 0)
            kept = life.copy()
            if drop_undo:
                kept.undo.clear()
            log = self._memory.logs[life.life]
            needed = {seq for part in shown(life, log, *kept.roots.values()) for seq in part}
            gone = {seq: entry for seq, entry in log.items() if seq not in needed}
            left = {seq: entry for seq, entry in log.items() if seq in needed}
            old = life.changes[:-REMEMBERED]
            keyed = [change for change in old if change.key and (not change.seqs or change.seqs[-1] in left)]
            kept.changes = keyed + life.changes[-REMEMBERED:]
            if gone:
                kept.changes = [_without(change, life, log, gone) for change in kept.changes]
            size = sum(len(entry.body) for entry in gone.values())
            kept.bytes -= size
            self._memory.lives[self._namespace, session_id], self._memory.logs[life.life] = kept, left
            return Compaction(1 if gone else 0, len(gone), size)

    def _reap(self) -> Compaction:
        """Remove the sessions that have expired."""
        over = [name for name, life in self._memory.lives.items() if _is_over(life, self._clock())]
        logs = [self._memory.logs.pop(self._memory.lives.pop(name).life, {}) for name in over]
        size = sum(len(entry.body) for log in logs for entry in log.values())
        return Compaction(len(over), sum(map(len, logs)), size)

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        with self._memory.lock:
            if session_id is None:
                known = {life.life for life in self._memory.lives.values()}
                strays = [life for life in self._memory.logs if life not in known]
                return 0, [Problem(None, None, f"entries of the life {life}, which does not exist") for life in strays]
            life = self._live(session_id)
            if life is None:
                return 0, []
            log = self._memory.logs.get(life.life, {})
            return len(log), list(_problems(life, log))

    async def close(self) -> None:
        self._is_closed = True


# --- receipts and refusals -------------------------------------------------------------------------------------------


def _is_over(life: Life, now: float) -> bool:
    return life.expires_at is not None and life.expires_at <= now


def _is_expected(life: Life | None, request: ChangeRequest | ForkRequest) -> bool:
    version, name = (life.version, life.life) if life else (0, "")
    return request.expected_version in (None, version) and request.expected_life in (None, name)


def _name_of(life: Life | None) -> str:
    return life.life if life else ""


def _refusal(status: Status, life: Life | None) -> ChangeOutcome:
    if life is None:
        return ChangeOutcome(status)
    return ChangeOutcome(status, life.life, life.version, detail=life.dimension or 0)


def _recalled(life: Life, request: ChangeRequest) -> ChangeOutcome | None:
    """Find the first receipt of this call or key; None if neither is known."""
    for change in reversed(life.changes if request.retry else ()):
        if change.call == request.call:
            return _receipt(Status.REPLAYED, life, change)
    for change in reversed(life.changes if request.key is not None else ()):
        # A turn that a rollback dropped may be written again; a change without a turn is never dropped.
        on_path = not change.seqs or contains(path(life.state.head, life.jumps), change.seqs[-1])
        if change.key == request.key and on_path:
            if change.content != request.content:
                return _receipt(Status.KEY_REUSED, life, change)
            return _receipt(Status.REPLAYED, life, change)
    return None


def _receipt(status: Status, life: Life, change: Remembered) -> ChangeOutcome:
    snapshot = None
    if change.kind == "snapshot" and change.snapshot and change.state:
        facts = (life.session_id, life.life, change.label, change.version, change.state.messages, change.created_at)
        snapshot = Snapshot(change.snapshot, *facts)
    first = change.seqs[0] if change.seqs else 0
    return ChangeOutcome(status, life.life, change.version, first, len(change.seqs), snapshot)


# --- entries ---------------------------------------------------------------------------------------------------------


def _row(seq: int, entry: Entry) -> EntryRow:
    return seq, entry.created_at, entry.checksum, entry.body, entry.kind, entry.turn


def _latest_summaries(life: Life, log: Log, state: State) -> tuple[EntryRow, ...]:
    """List the summaries that may stand for what a trim or fold hides, wherever on the path they are."""
    on_path = seqs_of(path(state.head, life.jumps)) if state.cleared < state.floor else []
    found = [seq for seq in on_path if seq > state.cleared and seq in log and log[seq].kind == SUMMARY]
    return tuple(_row(seq, log[seq]) for seq in found[-FRONT_SUMMARIES:])


def _is_damaged(entry: Entry) -> bool:
    return checksum(entry.kind, entry.body) != entry.checksum


def _read_token(page: str, order: Order) -> list[str]:
    try:
        made_for, listed = json.loads(urlsafe_b64decode(page.encode()))
        if made_for == order:
            return list(listed)
    except (ValueError, TypeError):
        pass
    raise InvalidInput("is not the `next` of a page in this order", path="page")


def _without(change: Remembered, life: Life, log: Log, gone: Log) -> Remembered:
    """Forget the state of a change if it shows one of the entries that have gone."""
    if change.state is None or not any(seq in gone for part in shown(life, log, change.state) for seq in part):
        return change
    return Remembered(**vars(change) | {"state": None})


def _problems(life: Life, log: Log) -> Iterable[Problem]:
    name = life.session_id
    for seq, entry in sorted(log.items()):
        try:
            decode(name, entry.kind, *_row(seq, entry)[:4])
        except CorruptEntry as exc:
            yield Problem(name, seq, str(exc))
    for seq, after in life.jumps:
        if not 0 <= after < seq <= life.last_seq:
            yield Problem(name, seq, f"its jump leads to {after}, which is not before it")
    for what, state in life.roots.items():
        if not 0 <= state.cleared <= state.floor <= state.head <= life.last_seq:
            yield Problem(name, None, f"{what} is not possible: {state}")
        elif sum(log[seq].kind == MESSAGE for seq in shown(life, log, state)[0] if seq in log) != state.messages:
            yield Problem(name, None, f"{what} does not show the {state.messages} messages it had")
    states: list[State] = [*life.roots.values(), *(change.state for change in life.changes if change.state is not None)]
    missing = [seq for seq in shown(life, log, *states)[0] if seq not in log]
    yield from (Problem(name, seq, "the entry is missing") for seq in missing[:100])
    latest = [change.version for change in life.changes[-REMEMBERED:]]
    if latest != list(range(life.version - len(latest) + 1, life.version + 1)):
        yield Problem(name, None, f"the change log does not lead to version {life.version}")
