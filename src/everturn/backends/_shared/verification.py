"""Verification of a stored session, and the errors for damage. Knows no backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from everturn.backend import REMEMBERED
from everturn.core import codec
from everturn.core.branches import Branches
from everturn.core.paths import Jump, State, minus, reach
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, Problem

SURPRISES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, msgspec.MsgspecError)
"""Errors raised by code that reads a value we never wrote. (MemoryStoreErrors among them are raised on purpose.)"""


def unreadable_session(session_id: str, exc: Exception) -> CorruptEntry:
    """Make the error for a session whose own row cannot be read: its history is then unknown."""
    return CorruptEntry(
        f"session {session_id!r}: its row in the table sessions cannot be read ({exc}). Was it changed by hand? "
        "Nothing was changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )


def damaged_jump(session_id: str, seq: int, after: int) -> CorruptEntry:
    """Make the error for a jump that does not lead back: the entries before it are then unknown."""
    return CorruptEntry(
        f"session {session_id!r}: entry {seq} is said to follow entry {after}, which is not before it; run verify",
        session_id=session_id,
        seq=seq,
    )


def damaged_session(session_id: str, what: str) -> CorruptEntry:
    """Make the error for a session of which rows are lost, or are not as they were written."""
    return CorruptEntry(
        f"session {session_id!r}: {what}. Was it changed by hand? `verify` tells what else is wrong. Nothing was "
        "changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )


def unreadable_store(name: str, exc: Exception) -> CorruptEntry:
    """Make the error for a listing of sessions that meets damage."""
    return CorruptEntry(
        f"{name}: its sessions cannot be listed ({exc}). Nothing was changed; run verify to see what is damaged",
        session_id="",
        seq=0,
    )


class ExaminedSession(msgspec.Struct):
    """A session as it is stored, without its entries."""

    session_id: str
    version: int
    last_seq: int
    jumps: Sequence[Jump]  # newest first
    roots: Sequence[tuple[State, str]]  # states it can return to, each with a name for messages
    remembered: Sequence[State]  # states of earlier versions that can still be read
    versions: Sequence[int]  # of the remembered changes, in order


def examine(stored: ExaminedSession, rows: Iterable[Sequence[Any]]) -> tuple[dict[int, str], list[Problem]]:
    """Check a session and its entries. Returns the kinds of the entries by seq, and the problems.

    `rows` are EntryRows in order; further columns are ignored.
    """
    name = stored.session_id
    kinds: dict[int, str] = {}
    problems: list[Problem] = []
    for seq, created_at, checksum, body, kind, *_ in rows:
        kinds[seq] = kind
        try:
            codec.decode(name, kind, seq, created_at, checksum, body)
        except CorruptEntry as exc:
            problems.append(Problem(name, seq, str(exc)))
    for seq, after in stored.jumps:
        if not 0 <= after < seq <= stored.last_seq:
            problems.append(Problem(name, seq, f"its jump leads to {after}, which is not before it"))
    messages = sorted(seq for seq, kind in kinds.items() if kind == MESSAGE)
    problems += (Problem(name, None, f"{called}: {wrong}") for called, wrong in _wrong_roots(stored, messages))
    problems += _gaps(stored, kinds)
    # Of changes older than the latest REMEMBERED, only those stay whose keys still count.
    versions = [version for version in stored.versions if version > stored.version - REMEMBERED]
    since = max(stored.versions[0], stored.version - REMEMBERED + 1) if stored.versions else 0
    if not versions or versions != list(range(since, stored.version + 1)):
        problems.append(Problem(name, None, f"the change log does not lead to version {stored.version}"))
    return kinds, problems


def _wrong_roots(stored: ExaminedSession, messages: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield the roots that are not possible, each with a reason. `messages` are the seqs of all messages, in order."""
    log = Branches(stored.jumps)
    count = log.tally(messages)
    known = set(messages)
    for state, called in stored.roots:
        if not 0 <= state.head <= stored.last_seq:
            yield called, f"it points to entry {state.head}, but the log ends at {stored.last_seq}"
            continue
        if not 0 <= state.cleared <= state.floor <= state.head or any(seq > state.floor for seq in state.kept):
            yield (
                called,
                f"it hides entries up to {state.cleared} and {state.floor}, which is not possible at {state.head}",
            )
        shown = count(state.head) - count(log.nearest(state.head, state.floor)) + len(known.intersection(state.kept))
        if shown != state.messages:
            yield called, f"it shows {shown} messages, but had {state.messages} when it was written"


def _gaps(stored: ExaminedSession, kinds: dict[int, str]) -> Iterator[Problem]:
    states = [state for state, _ in stored.roots]
    must = reach([*states, *stored.remembered], stored.jumps).whole
    for first, last in minus(must, [(seq, seq) for seq in kinds]):
        what = "the entry is missing" if first == last else f"the entries from here to {last} are missing"
        yield Problem(stored.session_id, first, what)
