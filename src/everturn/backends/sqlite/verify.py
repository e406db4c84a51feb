"""Looks at everything stored and says what is wrong with it. Reads only; one read transaction a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import apsw

from everturn.backends.soundness import Stored, examine
from everturn.backends.sqlite import pages
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.runs import MOST, is_checked, unpacked
from everturn.backends.sqlite.sessions import jumps_to, load, state_from
from everturn.backends.sqlite.upkeep import SQL, roots
from everturn.codec import EntryRow
from everturn.model import Problem


def verify_session(db: Connection, session_id: str, now: float) -> tuple[int, list[Problem]]:
    """How many entries the session has stored, and what is wrong: bad checksums, gaps, pointers that point nowhere."""
    session = load(db, session_id, now)
    if session is None:
        return 0, []
    stored = Stored(
        session_id,
        session.version,
        session.last_seq,
        jumps_to(db, session.no, session.last_seq),
        roots(db, session.no),
        [state_from(columns) for *columns, _, _ in db.execute(SQL["list_remembered"], session.span)],
        [version for (version,) in db.execute(SQL["every_version"], session.span)],
    )
    unchecked: list[range] = []

    def entries() -> Iterator[EntryRow]:
        for row in db.execute(SQL["every_row"], session.span):
            if not is_checked(row):
                unchecked.append(range(row[0], row[0] + min(max(row[6], 1), MOST)))
            yield from unpacked(row)

    kinds, problems = examine(stored, entries())
    bad = {problem.seq for problem in problems}
    problems += (
        Problem(session_id, seqs[0], "the checksums of its row are not those of what is in it")
        for seqs in unchecked
        if not bad.intersection(seqs)
    )
    return len(kinds), problems


def verify_file(db: Connection, path: str) -> list[Problem]:
    """What is wrong with the file itself, or belongs to no session. Ends the transaction that it is run in."""
    pages.look_past_damage(db)
    problems: list[Problem] = []
    try:
        for (line,) in db.execute("PRAGMA integrity_check"):
            if line != "ok":
                problems.append(Problem(None, None, f"SQLite: {line}"))
        for (no,) in db.execute(SQL["orphans"]):
            problems.append(Problem(None, None, f"entries of session number {no}, which does not exist"))
    except (apsw.CorruptError, UnicodeDecodeError) as exc:
        problems.append(Problem(None, None, f"SQLite: {exc}"))
    if path:
        db.execute("ROLLBACK")
        told = "page {} of the file does not match its checksum"
        problems += (Problem(None, None, told.format(no)) for no in pages.damaged(db, path, db.patience.deadline))
    return problems


def names(db: Connection) -> list[str]:
    """The names of the sessions, as far as the table can be read, and as far as the index of names can."""
    pages.look_past_damage(db)
    found: dict[str, None] = {}
    for statement in ("every_name", "every_indexed_name"):
        with suppress(apsw.CorruptError):
            for name, namespace in db.execute(SQL[statement]):
                with suppress(UnicodeDecodeError, AttributeError):
                    if namespace.decode() == db.namespace:
                        found[name.decode()] = None
    return list(found)
