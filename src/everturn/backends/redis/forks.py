"""Copies a state of one session into a new one: staged where nobody looks, then made visible at once."""

from __future__ import annotations

from typing import Any

from everturn.backend import ChangeOutcome, ChangeRequest, Fork, ForkRequest, Query, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import head_of, outcome_of
from everturn.backends.redis.names import Keys, Names
from everturn.backends.redis.reads import Found, collect
from everturn.backends.redis.records import jumps_text, state_text
from everturn.backends.redis.sending import Sender
from everturn.backends.redis.staging import put
from everturn.codec import missing


async def fork(sender: Sender, names: Names, request: ForkRequest, now: str, deadline: float) -> ChangeOutcome:
    """Make the target visible in one step. See Backend.fork."""
    keys = names.keys(request.target) + names.staged(request.target, request.call)
    birth = ChangeRequest(
        request.target, Fork(), request.call, request.ttl, request.key, request.content, retry=request.retry
    )
    head = head_of(birth, waits=bool(sender.replicas))
    known = await _ask(sender, keys, [*head, ""], request, now, deadline)
    if known.status is not Status.UNCHANGED:
        return known
    while True:
        query = Query(request.source, at=request.at)
        found = await collect(sender, names.keys(request.source), query, now, deadline)
        refusal = _refusal(request, found)
        if refusal is not None:
            return refusal
        if found.first_missing:
            raise missing(request.source, found.first_missing)
        own = await _stage(sender, keys[5:], found, deadline)
        args = [*head, *own, request.source, len(found.seqs)]
        outcome = await _ask(sender, keys, args, request, now, deadline)
        if outcome.status is not Status.MOVED:  # else the staged copy was gone
            return outcome


async def _ask(
    sender: Sender, keys: tuple[bytes, ...], args: list[Any], request: ForkRequest, now: str, deadline: float
) -> ChangeOutcome:
    reply = await sender.change(scripts.FORK, keys, args, now, deadline)
    return outcome_of(reply, request.target, Fork())


def _refusal(request: ForkRequest, found: Found) -> ChangeOutcome | None:
    session = found.seen.session
    version, life = (session.info.version, session.info.life) if session else (0, "")
    if request.expected_version not in (None, version) or request.expected_life not in (None, life):
        return ChangeOutcome(Status.CONFLICT, life, version)
    if found.seen.status is not Status.FOUND:
        return ChangeOutcome(found.seen.status, life, version)
    return None


async def _stage(sender: Sender, staged: Keys, found: Found, deadline: float) -> list[Any]:
    """Write the copy. Returns what fork.lua wants to know of it: state, last seq, dimension, jumps."""
    await sender.send(staged[0], [("UNLINK", *staged)], deadline, change=True)
    log = found.log
    rows = ((seq, log.kind_of(seq), log.values[seq]) for seq in found.seqs)
    await put(sender, staged, rows, (), deadline)
    state, session = found.seen.state, found.seen.session
    jumps = [jump for jump in session.jumps if jump[0] <= state.head] if session else []
    dimension = session.dimension if session else None
    return [state_text(state), state.head, "" if dimension is None else dimension, jumps_text(jumps)]
