"""Sorts the rows of verify_v1, which are everything stored of a session, for _shared/verification.py to judge."""

from __future__ import annotations

from typing import Any

from everturn.backends._shared.verification import ExaminedSession, examine
from everturn.backends.postgres.executor import Rows
from everturn.core.paths import State
from everturn.model import Problem


def problems_in(session_id: str, rows: Rows) -> tuple[int, list[Problem]]:
    """Count the entries, and name the problems. No rows: there is no such session."""
    parts: dict[str, list[Any]] = {"session": [], "entry": [], "jump": [], "root": [], "version": [], "wrong": []}
    for part, *columns in rows:
        parts[part].append(columns)
    if not parts["session"]:
        return 0, []
    ((version, last_seq, *_),) = parts["session"]
    stored = ExaminedSession(
        session_id,
        version,
        last_seq,
        [(seq, after) for seq, after, *_ in parts["jump"]],
        [(_state(state), name) for *_, name, state in parts["root"]],
        [_state(state) for *_, state in parts["version"] if state is not None],
        [number for number, *_ in parts["version"]],
    )
    entries = ((seq, at, check, body, kind) for seq, _, check, at, body, kind, _ in parts["entry"])
    kinds, problems = examine(stored, entries)
    problems += (Problem(session_id, seq, what) for seq, *_, what, _ in parts["wrong"])
    return len(kinds), problems


def _state(columns: tuple[int, int, int, list[int | None], int]) -> State:
    head, cleared, floor, kept, messages = columns
    # A NULL among them is damage, which the seal of the row tells of.
    return State(head, cleared, floor, tuple(seq for seq in kept if seq is not None), messages)
