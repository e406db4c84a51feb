"""Maintenance: compact and erase. Each step is one script of bounded length.

The plan of a compaction is made here: which entries and jumps no head, snapshot or undo step can reach. Out of reach is
out of reach for good, since a head only ever moves to a snapshot, to an undo step, or forward. So the plan need not be
made inside a script, and one plan serves many scripts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from everturn.backend import Erasure, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.client import Sender
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.open_checks import ServerAnswers, answers_of
from everturn.backends.redis.reads import all_changes
from everturn.backends.redis.session_state import read_all_parts, roots
from everturn.backends.redis.stored_form import (
    StoredChange,
    StoredSession,
    kind_in,
    message_row,
    ranges_of,
    ranges_text,
    seq_of,
)
from everturn.backends.redis.transport.resp import Command, ScriptCall
from everturn.core.paths import Jump, Range, Reach, clip, contains, merge, minus, out_of, reach
from everturn.errors import MemoryStoreBackendError
from everturn.model import Compaction, ErasureReceipt

STEP = 250  # entries or jumps deleted by one script: a millisecond or so
GAPS = 200  # ranges of the log looked through in one round trip
SHARE = 0.5  # of the time there is, for the scripts of one plan
REPLICA_WAIT = 0.5  # seconds that erase waits for replicas
NOTHING = Compaction(0, 0, 0)


async def compact(sender: Sender, keys: Keys, session_id: str, now: str, deadline: float) -> Compaction:
    """Delete entries and jumps that nothing can reach, in many scripts, while there is time.

    It leaves old changes alone: new changes forget them.
    """
    began = time.monotonic()
    full, _ = await read_all_parts(sender, keys, session_id, now, deadline)
    view, session = full.view, full.view.session
    if view.status is not Status.FOUND or session is None:
        return NOTHING
    remembered = await all_changes(sender, keys, session.info.life, deadline)
    needed = reach((state for state, _ in roots(view)), full.jumps)
    plan = _CompactionPlan(session, needed, full.jumps, remembered)
    count = size = steps = 0
    async for doomed in _out_of_reach(sender, keys, session, needed, deadline):
        freed = await plan.reclaim(sender, keys, doomed, deadline)
        count, size, steps = count + freed[0], size + freed[1], steps + 1
        # Nothing was reclaimed: another process did it, or the session is gone. The caller calls again.
        if not freed[0] or time.monotonic() > began + (deadline - began) * SHARE:
            return Compaction(1, count, size)
    while plan.jumps:
        steps += 1
        await plan.reclaim(sender, keys, [], deadline)
    return Compaction(1 if steps else 0, count, size)


async def drop_undo(sender: Sender, keys: Keys, now: str, deadline: float) -> None:
    """Forget every undo step of the session, in one step. The version stays. An absent session stays absent."""
    await sender.change(scripts.DROP_UNDO, keys, [], now, deadline)


class _CompactionPlan:
    """Jumps that nothing needs, and versions that cannot be read any more once an entry is reclaimed."""

    def __init__(
        self, session: StoredSession, needed: Reach, jumps: Sequence[Jump], remembered: Sequence[StoredChange]
    ) -> None:
        forgotten = _forgotten(session, needed, jumps, remembered)
        readable = [stored.state for stored in remembered if not contains(forgotten, stored.change.version)]
        # A version that can be read needs the jumps on its path, also those to entries that it does not show.
        ways = {seq for seq, _ in [*needed.jumps, *reach(readable, jumps).jumps]}
        self.jumps = [seq for seq, _ in jumps if seq not in ways]
        self._life = session.info.life
        self._before = session.forgotten_text.decode()
        self._after = ranges_text(forgotten)

    async def reclaim(
        self, sender: Sender, keys: Keys, doomed: Sequence[tuple[int, int]], deadline: float
    ) -> tuple[int, int]:
        """Run one script: delete these entries, and some of the jumps. Returns how many entries, and bytes."""
        jumps = self.jumps[: STEP - len(doomed)]
        args: list[Any] = [self._life, self._before, self._after, len(jumps), *jumps]
        count, size = await sender.run(
            scripts.RECLAIM, keys, [*args, *(part for pair in doomed for part in pair)], deadline
        )
        self.jumps = self.jumps[len(jumps) :]
        self._before = self._after
        return count, size


async def _out_of_reach(
    sender: Sender, keys: Keys, session: StoredSession, needed: Reach, deadline: float
) -> AsyncIterator[list[tuple[int, int]]]:
    """Yield seq and size of entries that may go, up to STEP of them at a time."""
    everything = [(1, session.info.last_seq)] if session.info.last_seq else []
    found: list[tuple[int, int]] = []
    async for name, (field, value, *_) in _between(sender, keys[1], minus(everything, needed.whole), deadline):
        seq = seq_of(name)
        if kind_in(field, session.info.life) != b"summary" or not contains(needed.summaries, seq):
            found.append((seq, len(message_row(seq, value)[3])))
        if len(found) == STEP:
            yield found
            found = []
    if found:
        yield found


async def _between(sender: Sender, log: bytes, gaps: Sequence[Range], deadline: float) -> AsyncIterator[Any]:
    """Yield the entries in these ranges of the log: many small ranges in one round trip, a large one in several."""
    small: list[Command] = []
    for first, last in gaps:
        if last - first < STEP:
            small.append(("XRANGE", log, first, last))
        if len(small) == GAPS:
            for rows in await sender.send(log, small, deadline):
                for row in rows:
                    yield row
            small = []
        low = first if last - first >= STEP else last + 1
        while low <= last:
            (rows,) = await sender.send(log, [("XRANGE", log, low, last, "COUNT", STEP)], deadline)
            for row in rows:
                yield row
            low = seq_of(rows[-1][0]) + 1 if len(rows) == STEP else last + 1
    for rows in await sender.send(log, small, deadline) if small else ():
        for row in rows:
            yield row


def _forgotten(
    session: StoredSession, needed: Reach, jumps: Sequence[Jump], remembered: Sequence[StoredChange]
) -> list[Range]:
    """Return the versions that show entries which go or are gone: they cannot be read any more."""
    seen = [stored for stored in remembered if stored.change.version <= session.info.version]
    if not seen:
        return []
    versions = [stored.change.version for stored in seen]
    already = clip(ranges_of(session.forgotten_text), min(versions), max(versions))
    lost = out_of(needed, [stored.state for stored in seen], jumps)
    return merge([*already, *((version, version) for version, is_lost in zip(versions, lost, strict=True) if is_lost)])


async def erase(
    sender: Sender,
    keys: Keys,
    session_id: str,
    life: str | None,
    now: str,
    deadline: float,
    version: int | None = None,
) -> Erasure:
    """Delete every part of the session, in one step; the server frees the memory in the background. The erasure is
    complete when every connected replica has done it, too: WAIT, on the same connection, says so."""
    server = await server_of(sender, keys[0], deadline)
    count = len(server.replicas)
    named = ["w" if count else "", "-" if life is None else life, "" if version is None else version]
    commands: list[Command] = [ScriptCall(scripts.ERASE, keys, named, clock=now)]
    if count:
        commands.append(("WAIT", count, max(1, int(min(REPLICA_WAIT, (deadline - time.monotonic()) / 4) * 1000))))
    removed, *reached = await sender.send(keys[0], commands, deadline, change=True)
    word, entries, snapshots, size = removed.split(b" ")
    complete = not count or reached[0] >= count
    numbers = int(entries), int(snapshots), int(size)
    return Erasure(
        ErasureReceipt(session_id, *numbers, complete, tuple(files_of(server))),
        spared=word == b"spared",
    )


UNKNOWN_FILES = "whatever the server keeps on disk and on replicas: it does not tell (INFO)"


async def server_of(sender: Sender, key: bytes, deadline: float) -> ServerAnswers:
    """Ask the server that has the key about itself. Empty if it does not answer: an erasure needs no answer."""
    try:
        return await answers_of(sender, await sender.topology.node_for(key, deadline), deadline)
    except MemoryStoreBackendError:
        return ServerAnswers({})


def files_of(server: ServerAnswers) -> Iterator[str]:
    """Name the files that still hold erased data, and what makes the server write them anew. Pure."""
    if not server.about:
        yield UNKNOWN_FILES
        return
    if server.about.get("aof_enabled") == "1":
        yield "the server's append-only file, until it is rewritten (BGREWRITEAOF)"
    if server.save != "":
        yield "the server's RDB file, until the next save (BGSAVE)"
    if server.replicas:
        yield "the files of its replicas, likewise"
