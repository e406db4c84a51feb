"""verify: reads everything stored and reports damage. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everturn.backend import Status
from everturn.backends._shared.verification import ExaminedSession, examine
from everturn.backends.redis import effects
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart, Refusal
from everturn.backends.redis.keys import STAGED, KeyNames, Keys
from everturn.backends.redis.reads import FetchedEntries, all_changes
from everturn.backends.redis.session_state import FullView, read_all_parts, read_view, retry_across_lives, roots
from everturn.backends.redis.stored_form import entry_row, ranges_of
from everturn.core.paths import contains
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, SUMMARY, TOOL_CALL, Problem

SCANNED = 1000  # keys looked at by one SCAN
TOGETHER = 2000  # milliseconds that may pass while the parts of a session are asked when they expire
ABSENT = -2  # of PTTL


async def verify_session(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float
) -> tuple[int, list[Problem]]:
    """Count the stored entries of a session, and report bad checksums, gaps, and pointers to nothing."""
    try:
        return await retry_across_lives(_verify, sender, keys, session_id, now, deadline)
    except CorruptEntry as exc:
        return 0, [Problem(session_id, None, str(exc))]


async def _verify(sender: Sender, keys: Keys, session_id: str, now: str, deadline: float) -> tuple[int, list[Problem]]:
    while True:
        full, _ = await read_all_parts(sender, keys, session_id, now, deadline)
        if full.view.status is not Status.FOUND or full.view.session is None:
            return 0, []
        count, problems = await _verified(sender, keys, full, deadline)
        if not problems:
            return count, []
        again, _ = await read_view(sender, keys, session_id, now, deadline)
        if again.session == full.view.session:  # else it was changed while it was read
            return count, problems


async def _verified(sender: Sender, keys: Keys, full: FullView, deadline: float) -> tuple[int, list[Problem]]:
    view, session = full.view, full.view.session
    if session is None:
        return 0, []
    log = FetchedEntries(sender, keys[1], deadline, session.info.life)
    await log.fetch([(1, session.info.last_seq)] if session.info.last_seq else [])
    made = await all_changes(sender, keys, session.info.life, deadline)
    remembered = [change for change in reversed(made) if change.change.version <= session.info.version]
    forgotten = ranges_of(session.forgotten_text)
    stored = ExaminedSession(
        session.info.session_id,
        session.info.version,
        session.info.last_seq,
        full.jumps,
        list(roots(view)),
        [made.state for made in remembered if not contains(forgotten, made.change.version)],
        [made.change.version for made in remembered],
    )
    rows = (entry_row(seq, log.kind_of(seq), value) for seq, value in sorted(log.values.items()))
    kinds, problems = examine(stored, rows)
    problems += _unlisted(session.info.session_id, full, kinds)
    try:
        await effects.read(sender, keys, "", deadline)
    except DamagedPart:
        what = "an effect, or its lease, is not what was written"
        problems.append(Problem(session.info.session_id, None, what))
    lives = await sender.send(keys[0], [("PTTL", key) for key in keys], deadline)
    return len(kinds), [*problems, *_uneven_expiry(session.info.session_id, lives)]


def _unlisted(session_id: str, full: FullView, kinds: dict[int, str]) -> Iterator[Problem]:
    """Report entries on which the log and the list of entries that are no messages disagree."""
    classes = {SUMMARY: "s", TOOL_CALL: "t"}
    there = {(classes.get(kind, "r"), seq) for seq, kind in kinds.items() if kind != MESSAGE}
    for seq in sorted({seq for _, seq in there ^ set(full.others)}):
        yield Problem(session_id, seq, "the log and the list of entries that are no messages disagree")


def _uneven_expiry(session_id: str, lives: Sequence[int]) -> Iterator[Problem]:
    """Report parts that do not expire together. `lives` are PTTLs: milliseconds; -1 never expires, -2 is absent."""
    there = [life for life in lives if life != ABSENT]
    if max(there, default=0) - min(there, default=0) > TOGETHER:
        yield Problem(session_id, None, "its parts do not expire at the same time: some of them will be missed")


async def verify_rest(sender: Sender, names: KeyNames, deadline: float) -> tuple[int, list[Problem]]:
    """Report if the keys cannot be listed. A session that has lost its meta is listed as any other, and reported when
    it is verified itself."""
    try:
        await _scanned(sender, names, deadline)
    except _ScanRefused as exc:
        return 0, [Problem(None, None, f"the keys cannot be listed: {exc}")]
    return 0, []


async def surviving_sessions(sender: Sender, names: KeyNames, deadline: float) -> list[str]:
    """Return the ids of all sessions of which any part exists; none if the server does not list its keys."""
    try:
        return sorted(await _scanned(sender, names, deadline))
    except _ScanRefused:
        return []


class _ScanRefused(Exception):
    """The server refuses SCAN."""


async def _scanned(sender: Sender, names: KeyNames, deadline: float) -> set[str]:
    pattern = names.pattern("", "*")
    sessions: set[str] = set()
    for _, node in await sender.topology.masters(deadline):
        cursor: bytes | str = "0"
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
            (reply,) = await sender.transport.exchange(node, [command], deadline)
            if isinstance(reply, Refusal):
                raise _ScanRefused(reply.text)
            cursor, found = reply
            sessions.update(names.session_of(key) for key in found if STAGED not in key)
            if cursor == b"0":
                break
    return sessions
