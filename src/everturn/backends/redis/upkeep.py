"""Keeping house: reclaiming what nothing can reach, and erasing. Each step is one script of bounded length.

Which entries may go is decided here, from the states a session can return to. Out of reach is out of reach for good: a
head only ever moves to a snapshot, to an undo step, or on; so the deciding need not be part of the script.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from everturn.backend import Erasure, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.leftovers import files_of, keeper_of
from everturn.backends.redis.looks import look
from everturn.backends.redis.names import Keys
from everturn.backends.redis.reads import changes
from everturn.backends.redis.records import (
    Session,
    StoredChange,
    message_row,
    ranges_of,
    ranges_text,
    seq_of,
)
from everturn.backends.redis.roots import roots
from everturn.backends.redis.sending import Sender
from everturn.backends.redis.wire import Call, Command
from everturn.model import Compaction, ErasureReceipt
from everturn.rules import Range, Reach, clip, contains, merge, minus, reach

STEP = 250  # entries deleted by one script: a millisecond or so
PATIENCE = 0.5  # seconds that erase waits for replicas
NOTHING = Compaction(0, 0, 0)


async def compact(sender: Sender, keys: Keys, session_id: str, now: str, deadline: float) -> Compaction:
    """One step: delete up to STEP entries that no root shows. (Old changes go as new ones come.)"""
    seen, _ = await look(sender, keys, session_id, now, deadline, snapshots=True)
    if seen.status is not Status.FOUND or seen.session is None:
        return NOTHING
    session = seen.session
    remembered = await changes(sender, keys, deadline)
    needed = reach((state for state, _ in roots(seen)), session.jumps)
    doomed = await _out_of_reach(sender, keys, session, needed, deadline)
    (others,) = await sender.send(keys[2], [("ZRANGE", keys[2], 0, -1)], deadline)
    summaries = [int(member[1:]) for member in others if member[:1] == b"s"]
    forgotten = _forgotten(session, remembered, needed, summaries)
    before, after = session.forgotten_text.decode(), ranges_text(forgotten)
    if not doomed and after == before:
        return NOTHING
    entries = [part for pair in doomed for part in pair]
    count, size = await sender.run(scripts.RECLAIM, keys, [session.info.life, before, after, *entries], deadline)
    # Nothing reclaimed: someone else did, or the session went. Look again.
    return Compaction(1 if doomed else 0, count, size)


async def _out_of_reach(
    sender: Sender, keys: Keys, session: Session, needed: Reach, deadline: float
) -> list[tuple[int, int]]:
    """Seq and size of up to STEP entries that may go."""
    everything = [(1, session.info.last_seq)] if session.info.last_seq else []
    found: list[tuple[int, int]] = []
    for first, last in minus(everything, needed.whole):
        low = first
        while low <= last and len(found) < STEP:
            (rows,) = await sender.send(keys[1], [("XRANGE", keys[1], low, last, "COUNT", STEP)], deadline)
            for name, (kind, value, *_) in rows:
                seq = seq_of(name)
                if kind != b"summary" or not contains(needed.summaries, seq):
                    found.append((seq, len(message_row(seq, value)[3])))
            low = seq_of(rows[-1][0]) + 1 if len(rows) == STEP else last + 1
    return found[:STEP]


def _forgotten(
    session: Session, remembered: Sequence[StoredChange], needed: Reach, summaries: Sequence[int]
) -> list[Range]:
    """The versions that show what has gone or is about to go, and can no longer be read."""
    kept = needed.whole + needed.summaries
    going = [seq for seq in summaries if not contains(kept, seq)]
    versions = [stored.change.version for stored in remembered]
    if not versions:
        return []
    jumps = session.jumps
    lost: list[Range] = list(clip(ranges_of(session.forgotten_text), min(versions), max(versions)))
    for stored in remembered:
        if clip(lost, stored.change.version, stored.change.version):
            continue
        shown = reach([stored.state], jumps)
        if minus(shown.whole, needed.whole) or any(contains(shown.summaries, seq) for seq in going):
            lost.append((stored.change.version, stored.change.version))
    return merge(lost)


async def erase(sender: Sender, keys: Keys, session_id: str, life: str | None, now: str, deadline: float) -> Erasure:
    """Delete every part of the session, in one step; the server frees the memory behind the scenes. Complete when every
    replica that follows has done so, too: that is waited for, on the connection that erased."""
    server = await keeper_of(sender, keys[0], deadline)
    count = len(server.replicas)
    named = ["w" if count else "", "-" if life is None else life]
    commands: list[Command] = [Call(scripts.ERASE, keys, named, clock=now)]
    if count:
        commands.append(("WAIT", count, max(1, int(min(PATIENCE, (deadline - time.monotonic()) / 4) * 1000))))
    removed, *reached = await sender.send(keys[0], commands, deadline, change=True)
    word, entries, snapshots, size = removed.split(b" ")
    complete = not count or reached[0] >= count
    numbers = int(entries), int(snapshots), int(size)
    return Erasure(
        ErasureReceipt(session_id, *numbers, complete, tuple(files_of(server))),
        spared=word == b"spared",
    )
