"""Verify: reads everything stored and lists the damage. Writes nothing; one read transaction per session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import apsw

from everturn.backend import REMEMBERED
from everturn.backends._shared.verification import ExaminedSession, examine
from everturn.backends.sqlite import page_checksums, schema, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.effects import effects_of, wrong_links
from everturn.backends.sqlite.errors import BAD_CHECKSUM
from everturn.backends.sqlite.leases import lease_of
from everturn.backends.sqlite.packed_rows import MOST_LINES, has_its_checksums, unpacked
from everturn.backends.sqlite.session_row import SessionRow, all_jumps, load, remembered_states, roots
from everturn.core.codec import EntryRow
from everturn.core.signal_exceptions import is_interruption
from everturn.model import Problem

SQL = statements.load("verify.sql")
UNREADABLE = (
    apsw.CorruptError,
    apsw.SQLError,
    UnicodeDecodeError,
)  # raised by a page, the schema or a text that is not as it was written
KINDS = {"append", "replace", "trim", "fold", "clear", "snapshot", "delete_snapshot", "rollback", "undo", "ttl", "fork"}
KINDS |= {"begin_effect", "finish_effect", "fail_effect", "facts"}


def verify_session(db: Connection, session_id: str, now: float) -> tuple[int, list[Problem]]:
    """Count the stored entries of a session, and list problems: bad checksums, gaps, pointers that lead nowhere.

    An absent session has none of either.
    """
    bad: list[str] = []  # rows that do not match their checksums
    session = load(db, session_id, now, bad)
    if session is None:
        return 0, []
    stored = ExaminedSession(
        session_id,
        session.version,
        session.last_seq,
        all_jumps(db, session, bad),
        roots(db, session, bad),
        [state for _, state in remembered_states(db, session, bad)],
        [version for (version,) in db.execute(SQL["every_version"], session.span)],
    )
    unchecked: list[range] = []

    def entries() -> Iterator[EntryRow]:
        for row in db.execute(SQL["every_row"], session.span):
            if not has_its_checksums(row):
                unchecked.append(range(row[0], row[0] + min(max(row[6], 1), MOST_LINES)))
            yield from unpacked(row)

    kinds, problems = examine(stored, entries())
    begun = effects_of(db, session, bad)
    bad.extend(wrong_links(db, session, begun))
    bad.extend(
        f"the effect {row.key!r} is {row.status!r} since version {row.began}, which cannot be"
        for row in begun
        if row.status not in ("started", "finished", "failed") or not 0 < row.began <= session.version
    )
    try:
        lease_of(db, session_id)
    except (ValueError, TypeError) as exc:
        if is_interruption(exc):
            raise
        bad.append(str(exc))
    found = {problem.seq for problem in problems}
    problems += (
        Problem(session_id, seqs[0], "the checksums of its row are not those of what is in it")
        for seqs in unchecked
        if not found.intersection(seqs)
    )
    problems += (Problem(session_id, None, what) for what in (*bad, *_disagreements(db, session)))
    return len(kinds), problems


def _disagreements(db: Connection, session: SessionRow) -> Iterator[str]:
    """Find facts that are stored twice and differ, though each row matches its checksum."""
    low, high = session.span
    named = {"no": session.number, "low": low, "high": high, "remembered": REMEMBERED}
    try:
        for version, kind, *_ in db.execute(SQL["texts_of_changes"], named):
            if kind not in KINDS:
                yield f"version {version} is said to be a change of the kind {kind!r}, which there is not"
    except UnicodeDecodeError as exc:
        yield f"a change cannot be read ({exc})"
    if not set(session.life) <= set("0123456789abcdef"):
        yield f"its life is called {session.life!r}, which is no name of ours"
    for name, statement in SQL.items():
        if name.startswith("wrong_"):
            yield from (what for (what,) in db.execute(statement, named))


def verify_file(db: Connection, path: str) -> list[Problem]:
    """List problems of the file itself, and rows that belong to no session. Ends the transaction that it is run in."""
    page_checksums.look_past_damage(db)
    problems: list[Problem] = []
    for look in (_integrity, _orphans, _schema):
        try:
            problems += (Problem(None, None, what) for what in look(db))
        except UNREADABLE as exc:
            problems.append(Problem(None, None, f"SQLite: {exc}"))
    if path:
        db.execute("ROLLBACK")
        problems += (
            Problem(None, None, f"page {number} {BAD_CHECKSUM}")
            for number in page_checksums.damaged(db, path, db.patience.deadline)
        )
    return problems


def _integrity(db: Connection) -> Iterator[str]:
    return (f"SQLite: {line}" for (line,) in db.execute("PRAGMA integrity_check") if line != "ok")


def _orphans(db: Connection) -> Iterator[str]:
    return (f"entries of session number {number}, which does not exist" for (number,) in db.execute(SQL["orphans"]))


def _schema(db: Connection) -> Iterator[str]:
    """Find tables, indexes and views of ours that are not defined as we define them. Others may exist beside them."""
    found = schema.parts(db)
    for name, text in schema.wanted().items():
        if found.get(name) != text:
            yield f"{name} is not defined as everturn defines it; the stored schema is damaged, or was changed by hand"


def names(db: Connection) -> list[str]:
    """List the names of sessions that can be read from the table or from the index of names."""
    page_checksums.look_past_damage(db)
    found: dict[str, None] = {}
    for statement in ("every_name", "every_indexed_name"):
        with suppress(apsw.CorruptError, apsw.SQLError):
            for name, namespace in db.execute(SQL[statement]):
                with suppress(UnicodeDecodeError, AttributeError):
                    if namespace.decode() == db.namespace:
                        found[name.decode()] = None
    return list(found)
