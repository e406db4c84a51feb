"""Looks at everything stored and says what is wrong with it. Reads only."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from everturn import codec
from everturn.backend import Status
from everturn.backends.redis.faults import Refusal
from everturn.backends.redis.looks import Seen, look
from everturn.backends.redis.names import STAGED, Keys, Names
from everturn.backends.redis.reads import Log, changes
from everturn.backends.redis.records import Session, StoredChange, entry_row, ranges_of
from everturn.backends.redis.roots import roots
from everturn.backends.redis.sending import Sender
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, Problem
from everturn.rules import Jump, State, clip, minus, reach

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
    name = session.info.session_id
    problems: list[Problem] = []
    kinds: dict[int, str] = {}
    log = Log(sender, keys[1], deadline)
    await log.fetch([(1, session.info.last_seq)] if session.info.last_seq else [])
    for seq, (kind, value) in sorted(log.entries.items()):
        row = entry_row(seq, kind, value)
        kinds[seq] = row[4]
        try:
            codec.decode(name, row[4], *row[:4])
        except CorruptEntry as exc:
            problems.append(Problem(name, seq, str(exc)))
    for seq, after in session.jumps:
        if not 0 <= after < seq <= session.info.last_seq:
            problems.append(Problem(name, seq, f"its jump leads to {after}, which is not before it"))
    seqs = [seq for seq, kind in kinds.items() if kind == MESSAGE]
    states = list(roots(seen))
    for state, what in states:
        problems += (Problem(name, None, f"{what}: {wrong}") for wrong in _wrong_with(state, session, seqs))
    problems += _unlisted(seen, kinds)
    remembered = await changes(sender, keys, deadline)
    forgotten = ranges_of(session.forgotten_text)
    states += (
        (stored.state, f"version {stored.change.version}")
        for stored in remembered
        if not clip(forgotten, stored.change.version, stored.change.version)
    )
    problems += _gaps(name, states, session.jumps, kinds)
    problems += _broken_log(session, remembered)
    return len(kinds), problems


def _wrong_with(state: State, session: Session, seqs: list[int]) -> Iterator[str]:
    """`seqs` are those of all messages there are, in order."""
    last_seq = session.info.last_seq
    if not 0 <= state.head <= last_seq:
        yield f"it points to entry {state.head}, but the log ends at {last_seq}"
        return
    if not 0 <= state.cleared <= state.floor <= state.head or any(seq > state.floor for seq in state.kept):
        yield f"it hides entries up to {state.cleared} and {state.floor}, which is not possible at {state.head}"
    shown = reach([state], session.jumps).whole
    messages = sum(bisect_right(seqs, last) - bisect_left(seqs, first) for first, last in shown)
    if messages != state.messages:
        yield f"it shows {messages} messages, but had {state.messages} when it was written"


def _unlisted(seen: Seen, kinds: dict[int, str]) -> Iterator[Problem]:
    """Entries that are no messages are listed beside the log; both must agree."""
    session = seen.session
    if session is None:
        return
    listed = {seq for _, seq in seen.others}
    there = {seq for seq, kind in kinds.items() if kind != MESSAGE and seen.state.cleared < seq <= seen.state.head}
    for seq in sorted(listed ^ there):
        yield Problem(session.info.session_id, seq, "the log and the list of entries that are no messages disagree")


def _gaps(
    session_id: str, states: Sequence[tuple[State, str]], jumps: list[Jump], kinds: dict[int, str]
) -> Iterator[Problem]:
    must = reach((state for state, _ in states), jumps).whole
    for first, last in minus(must, [(seq, seq) for seq in kinds]):
        what = "the entry is missing" if first == last else f"the entries from here to {last} are missing"
        yield Problem(session_id, first, what)


def _broken_log(session: Session, remembered: Sequence[StoredChange]) -> Iterator[Problem]:
    versions = [stored.change.version for stored in reversed(remembered)]
    if not versions or versions != list(range(versions[0], session.info.version + 1)):
        what = f"the change log does not lead to version {session.info.version}"
        yield Problem(session.info.session_id, None, what)


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
