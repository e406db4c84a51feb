"""Looks at everything stored and says what is wrong with it. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from everturn.backend import Status
from everturn.backends.redis.faults import Refusal
from everturn.backends.redis.looks import Seen, look
from everturn.backends.redis.names import STAGED, Keys, Names
from everturn.backends.redis.reads import Log, changes
from everturn.backends.redis.records import entry_row, ranges_of
from everturn.backends.redis.roots import roots
from everturn.backends.redis.sending import Sender
from everturn.backends.soundness import Stored, examine
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, Problem
from everturn.rules import contains

SCANNED = 1000  # keys looked at by one SCAN


async def verify_session(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float
) -> tuple[int, list[Problem]]:
    """How many entries the session has stored, and what is wrong: bad checksums, gaps, pointers that point nowhere."""
    while True:
        try:
            seen, _ = await look(sender, keys, session_id, now, deadline, snapshots=True, others=True)
        except CorruptEntry as exc:
            return 0, [Problem(session_id, None, str(exc))]
        if seen.status is not Status.FOUND or seen.session is None:
            return 0, []
        count, problems = await _verified(sender, keys, seen, deadline)
        if not problems:
            return count, []
        again, _ = await look(sender, keys, session_id, now, deadline, snapshots=True, others=True)
        if again == seen:  # else it changed while it was looked at
            return count, problems


async def _verified(sender: Sender, keys: Keys, seen: Seen, deadline: float) -> tuple[int, list[Problem]]:
    session = seen.session
    if session is None:
        return 0, []
    log = Log(sender, keys[1], deadline)
    await log.fetch([(1, session.info.last_seq)] if session.info.last_seq else [])
    remembered = list(reversed(await changes(sender, keys, deadline)))
    forgotten = ranges_of(session.forgotten_text)
    stored = Stored(
        session.info.session_id,
        session.info.version,
        session.info.last_seq,
        session.jumps,
        list(roots(seen)),
        [made.state for made in remembered if not contains(forgotten, made.change.version)],
        [made.change.version for made in remembered],
    )
    rows = (entry_row(seq, log.kind_of(seq), value) for seq, value in sorted(log.values.items()))
    kinds, problems = examine(stored, rows)
    return len(kinds), [*problems, *_unlisted(seen, kinds)]


def _unlisted(seen: Seen, kinds: dict[int, str]) -> Iterator[Problem]:
    """Entries that are no messages are listed beside the log; both must agree."""
    session = seen.session
    if session is None:
        return
    listed = {seq for _, seq in seen.others}
    there = {seq for seq, kind in kinds.items() if kind != MESSAGE and seen.state.cleared < seq <= seen.state.head}
    for seq in sorted(listed ^ there):
        yield Problem(session.info.session_id, seq, "the log and the list of entries that are no messages disagree")


async def verify_rest(sender: Sender, names: Names, deadline: float) -> tuple[int, list[Problem]]:
    """Parts of sessions that have no meta: evicted, or deleted by hand."""
    pattern = names.pattern("", "*")
    heads: set[str] = set()
    parts: set[str] = set()
    for _, node in await sender.topology.masters(deadline):
        cursor: bytes | str = "0"
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
            (reply,) = await sender.lines.exchange(node, [command], deadline)
            if isinstance(reply, Refusal):
                return 0, [Problem(None, None, f"the keys cannot be listed: {reply.text}")]
            cursor, found = reply
            for key in found:
                if STAGED not in key:
                    (heads if key.endswith(b"}:meta") else parts).add(names.session_of(key))
            if cursor == b"0":
                break
    return 0, [Problem(name, None, "its meta key is gone, but other parts are there") for name in sorted(parts - heads)]
