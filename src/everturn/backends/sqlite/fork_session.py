"""Forks a session: copies one of its states into a new session, inside the database, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from everturn.backend import ChangeOutcome, ChangeRequest, Fork, ForkRequest, Query, Status
from everturn.backends.sqlite import apply_change, reads, session_row, statements
from everturn.backends.sqlite.apply_change import insert_jumps
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.lost_entries import first_missing
from everturn.backends.sqlite.maintenance import rewrite
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.backends.sqlite.row_checksums import shift
from everturn.backends.sqlite.session_row import SessionRow
from everturn.backends.sqlite.visible_ranges import ranges_as_json, refuse_misplaced_summaries
from everturn.core.codec import missing
from everturn.core.paths import Range, State, clip
from everturn.core.plan_change import Plan

SQL = statements.load("fork_session.sql")
# Seqs whose rows one statement copies: from a table into itself, SQLite holds all that a statement copies in memory.
PORTION = 4096


def fork(db: Connection, request: ForkRequest, now: float) -> ChangeOutcome:
    """Fork a session as Backend.fork says: the target is there as a whole, or not at all."""
    digests = (request.key, request.content)
    birth = ChangeRequest(request.target, Fork(), request.call, request.ttl, *digests, retry=request.retry)
    target = session_row.load(db, request.target, now)
    if target is not None:
        exists = ChangeOutcome(Status.EXISTS, target.life, target.version)
        return apply_change.earlier_outcome(db, target, birth) or exists
    source = session_row.load(db, request.source, now)
    version, life = (source.version, source.life) if source else (0, "")
    if request.expected_version not in (None, version) or request.expected_life not in (None, life):
        return ChangeOutcome(Status.CONFLICT, life, version)
    if source is None:
        return ChangeOutcome(Status.NO_SESSION)
    state = reads.state_at(db, source, Query(request.source, at=request.at))
    if isinstance(state, Status):
        return ChangeOutcome(state, life, version)
    return _copy(db, source, state, birth, now)


def _copy(db: Connection, source: SessionRow, state: State, birth: ChangeRequest, now: float) -> ChangeOutcome:
    target = apply_change.begin_life(db, birth, now, origin=source.session_id)
    path = PathWalk(db, source, state.head).down_to(0)
    kept = [(seq, seq) for seq in state.kept]
    whole = ranges_as_json(kept + clip(path, state.floor + 1, state.head), path)
    summaries = ranges_as_json(clip(path, state.cleared + 1, state.floor), path)
    bases = (source.base, target.base, shift(target.number - source.number))
    for some in portions(msgspec.json.decode(whole)):
        db.execute(SQL["copy_ranges"], (msgspec.json.encode(some).decode(), *bases))
    refuse_misplaced_summaries(db, source.base + state.cleared + 1, source.base + state.floor)
    for some in portions(msgspec.json.decode(summaries)):
        db.execute(SQL["copy_summaries"], (msgspec.json.encode(some).decode(), *bases))
    lost = first_missing(db, target.base, whole, state.messages)
    if lost:
        raise missing(source.session_id, lost)
    wanted: dict[int, list[Range]] = {}
    for seq, first, last in db.rows(SQL["too_much"], (whole, target.base)):
        wanted.setdefault(seq, []).append((first, last))
    for seq, ranges in wanted.items():
        rewrite(db, target.number, db.row(SQL["load_row"], (target.base + seq,)), ranges)
    # The jumps of the path alone: the copy has no other branches.
    jumps = [(seq, after) for (_, after), (seq, _) in pairwise([(0, 0), *path]) if seq > 1]
    last_jump = insert_jumps(db, target.base, jumps, 0)
    size = db.value(SQL["stored_bytes"], target.span)
    copied = msgspec.structs.replace(
        target, last_seq=state.head, bytes=size, dimension=source.dimension, last_jump=last_jump
    )
    # A copy of a user's session is that user's, too: whoever erases by a fact must find it.
    facts = source.facts or None
    return apply_change.write_plan(db, copied, Plan(state, facts=facts), birth, now)


def portions(ranges: list[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Divide ranges (where to look from, first and last seq) into portions of at most PORTION seqs, in order.

    A row that reaches from one portion into the next belongs to the first: the next looks from its own first seq on.
    """
    some: list[tuple[int, int, int]] = []
    room = PORTION
    for low, first, last in ranges:
        start, begin = low, first
        while begin <= last:
            end = min(last, begin + room - 1)
            some.append((start, begin, end))
            room -= end - begin + 1
            start = begin = end + 1
            if not room:
                yield some
                some, room = [], PORTION
    if some:
        yield some
