"""Looks at everything stored and says what is wrong with it. Reads only; one read transaction a session."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from everturn import codec
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.sessions import Session, jumps_to, load, state_from
from everturn.backends.sqlite.upkeep import SQL, roots
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, Problem
from everturn.rules import Jump, State, minus, reach


def verify_session(db: Connection, session_id: str, now: float) -> tuple[int, list[Problem]]:
    """How many entries the session has stored, and what is wrong: bad checksums, gaps, pointers that point nowhere."""
    session = load(db, session_id, now)
    if session is None:
        return 0, []
    problems: list[Problem] = []
    kinds: dict[int, str] = {}
    for seq, created_at, check, body, kind in db.execute(SQL["every_row"], session.span):
        kinds[seq] = kind
        try:
            codec.decode(session_id, kind, seq, created_at, check, body)
        except CorruptEntry as exc:
            problems.append(Problem(session_id, seq, str(exc)))
    jumps = jumps_to(db, session.no, session.last_seq)
    for seq, after in jumps:
        if not 0 <= after < seq <= session.last_seq:
            problems.append(Problem(session_id, seq, f"its jump leads to {after}, which is not before it"))
    states = roots(db, session.no)
    seqs = [seq for seq, kind in kinds.items() if kind == MESSAGE]
    for state, name in states:
        problems += (Problem(session_id, None, f"{name}: {what}") for what in _wrong_with(state, session, jumps, seqs))
    remembered = db.rows(SQL["list_remembered"], session.span)
    states += ((state_from(columns), name) for *columns, name, _ in remembered)
    problems += _gaps(session_id, states, jumps, kinds)
    versions = [version for (version,) in db.execute(SQL["every_version"], session.span)]
    if versions and versions != list(range(versions[0], session.version + 1)):
        problems.append(Problem(session_id, None, f"the change log does not lead to version {session.version}"))
    return len(kinds), problems


def _wrong_with(state: State, session: Session, jumps: list[Jump], seqs: list[int]) -> Iterator[str]:
    """`seqs` are those of all messages there are, in order."""
    if not 0 <= state.head <= session.last_seq:
        yield f"it points to entry {state.head}, but the log ends at {session.last_seq}"
        return
    if not 0 <= state.cleared <= state.floor <= state.head or any(seq > state.floor for seq in state.kept):
        yield f"it hides entries up to {state.cleared} and {state.floor}, which is not possible at {state.head}"
    shown = reach([state], jumps).whole
    messages = sum(bisect_right(seqs, last) - bisect_left(seqs, first) for first, last in shown)
    if messages != state.messages:
        yield f"it shows {messages} messages, but had {state.messages} when it was written"


def _gaps(
    session_id: str, states: list[tuple[State, str]], jumps: list[Jump], kinds: dict[int, str]
) -> Iterator[Problem]:
    must = reach((state for state, _ in states), jumps).whole
    for first, last in minus(must, [(seq, seq) for seq in kinds]):
        what = "the entry is missing" if first == last else f"the entries from here to {last} are missing"
        yield Problem(session_id, first, what)


def verify_file(db: Connection) -> tuple[int, list[Problem]]:
    """What is wrong with the file itself, or belongs to no session."""
    problems = [
        Problem(None, None, f"SQLite: {line}") for (line,) in db.execute("PRAGMA integrity_check") if line != "ok"
    ]
    orphans = (no for (no,) in db.execute(SQL["orphans"]))
    problems += (Problem(None, None, f"entries of session number {no}, which does not exist") for no in orphans)
    return 0, problems
