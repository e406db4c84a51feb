"""Looks at everything stored of a session and says what is wrong with it. Pure: the rows come from verify_v1."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from everturn import codec
from everturn.backends.postgres.ports import Rows
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, Problem
from everturn.rules import Jump, Range, State, clip, merge, minus, path


class _Parts(msgspec.Struct):
    """What the rows hold, sorted by part."""

    version: int = 0
    last_seq: int = 0
    kinds: dict[int, str] = {}
    jumps: list[Jump] = []
    roots: list[tuple[State, str]] = []
    remembered: list[State] = []
    versions: list[int] = []
    problems: list[Problem] = []


def problems_in(session_id: str, rows: Rows) -> tuple[int, list[Problem]]:
    """How many entries there are, and what is wrong: bad checksums, gaps, pointers that point nowhere."""
    parts = _sorted_out(session_id, rows)
    problems = parts.problems
    for seq, after in parts.jumps:
        if not 0 <= after < seq <= parts.last_seq:
            problems.append(Problem(session_id, seq, f"its jump leads to {after}, which is not before it"))
    messages = [seq for seq, kind in parts.kinds.items() if kind == MESSAGE]
    for state, name in parts.roots:
        wrong = _wrong_with(state, parts.last_seq, parts.jumps, messages)
        problems += (Problem(session_id, None, f"{name}: {what}") for what in wrong)
    states = [state for state, _ in parts.roots] + parts.remembered
    problems += _gaps(session_id, states, parts.jumps, parts.kinds)
    versions = parts.versions
    if versions and versions != list(range(versions[0], parts.version + 1)):
        problems.append(Problem(session_id, None, f"the change log does not lead to version {parts.version}"))
    return len(parts.kinds), problems


def _sorted_out(session_id: str, rows: Rows) -> _Parts:
    parts = _Parts()
    for part, seq, after, check, created_at, body, name, state in rows:
        if part == "entry":
            parts.kinds[seq] = name
            try:
                codec.decode(session_id, name, seq, created_at, check, body)
            except CorruptEntry as exc:
                parts.problems.append(Problem(session_id, seq, str(exc)))
        elif part == "jump":
            parts.jumps.append((seq, after))
        elif part == "root":
            parts.roots.append((_state(state), name))
        elif part == "version":
            parts.versions.append(seq)
            if state is not None:
                parts.remembered.append(_state(state))
        else:
            parts.version, parts.last_seq = seq, after
    return parts


def _state(columns: tuple[int, int, int, list[int], int]) -> State:
    head, cleared, floor, kept, messages = columns
    return State(head, cleared, floor, tuple(kept), messages)


def _shown(states: Iterable[State], jumps: Sequence[Jump]) -> list[Range]:
    """What these states show whatever its kind."""
    whole: list[Range] = []
    for state in states:
        whole += ((seq, seq) for seq in state.kept)
        whole += clip(path(state.head, jumps), state.floor + 1, state.head)
    return merge(whole)


def _wrong_with(state: State, last_seq: int, jumps: list[Jump], messages: list[int]) -> Iterator[str]:
    """`messages` are the seqs of all there are, in order."""
    if not 0 <= state.head <= last_seq:
        yield f"it points to entry {state.head}, but the log ends at {last_seq}"
        return
    if not 0 <= state.cleared <= state.floor <= state.head or any(seq > state.floor for seq in state.kept):
        yield f"it hides entries up to {state.cleared} and {state.floor}, which is not possible at {state.head}"
    shown = _shown([state], jumps)
    count = sum(bisect_right(messages, last) - bisect_left(messages, first) for first, last in shown)
    if count != state.messages:
        yield f"it shows {count} messages, but had {state.messages} when it was written"


def _gaps(session_id: str, states: list[State], jumps: list[Jump], kinds: dict[int, str]) -> Iterator[Problem]:
    for first, last in minus(_shown(states, jumps), [(seq, seq) for seq in kinds]):
        what = "the entry is missing" if first == last else f"the entries from here to {last} are missing"
        yield Problem(session_id, first, what)
