"""Copies a state of one session into a new one, inside the database, in one transaction."""

from __future__ import annotations

import msgspec

from everturn.backend import ChangeOutcome, ChangeRequest, Fork, ForkRequest, Query, Status
from everturn.backends.sqlite import changes, reads, sessions
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.plans import Plan
from everturn.backends.sqlite.upkeep import SQL
from everturn.rules import State, reach


def fork(db: Connection, request: ForkRequest, now: float) -> ChangeOutcome:
    """Make the target visible in one step. See Backend.fork."""
    replay = _recall(db, request, now)
    if replay is not None:
        return replay
    source = reads.find_session(db, request.source, now)
    version, life = (source.info.version, source.info.life) if source else (0, "")
    if request.expected_version not in (None, version) or request.expected_life not in (None, life):
        return ChangeOutcome(Status.CONFLICT, life, version)
    if source is None:
        return ChangeOutcome(Status.NO_SESSION)
    state = reads.state_at(db, source, Query(request.source, at=request.at))
    if isinstance(state, Status):
        return ChangeOutcome(state, life, version)
    return _copy(db, source, state, request, now)


def _recall(db: Connection, request: ForkRequest, now: float) -> ChangeOutcome | None:
    """The receipt of an earlier attempt; EXISTS if the target is there for another reason; None if it is not."""
    target = sessions.load(db, request.target, now)
    if target is None:
        return None
    row = db.row(changes.SQL["find_call"], (target.base, target.base + 1, request.call))
    if row is None and request.key is not None:
        row = db.row(changes.SQL["find_key"], (request.key, target.base, target.base + 1))
        if row is not None and row[3] != request.content:
            return ChangeOutcome(Status.KEY_REUSED, target.life, target.version)
    if row is None:
        return ChangeOutcome(Status.EXISTS, target.life, target.version)
    return ChangeOutcome(Status.REPLAYED, target.life, row[0])


def _copy(db: Connection, source: reads.Found, state: State, request: ForkRequest, now: float) -> ChangeOutcome:
    birth = ChangeRequest(request.target, Fork(), request.call, request.ttl, request.key, request.content)
    target = changes.begin(db, birth, now, origin=request.source)
    jumps = sessions.jumps_to(db, source.no, state.head)
    shown = reach([state], jumps)
    for statement, ranges in (("copy_ranges", shown.whole), ("copy_summaries", shown.summaries)):
        db.execute(SQL[statement], (msgspec.json.encode(ranges).decode(), source.base, target.base))
    for seq, after in jumps:
        db.execute(changes.SQL["insert_jump"], (target.base + seq, after))
    size = db.value(SQL["stored_bytes"], target.span)
    origin = sessions.load(db, request.source, now)
    copied = msgspec.structs.replace(
        target, last_seq=state.head, bytes=size, dimension=origin.dimension if origin else None
    )
    return changes.write(db, copied, Plan(state), birth, now)
