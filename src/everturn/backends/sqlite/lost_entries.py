"""Notices entries that a read should have found and did not: deleted rows, damaged kinds, an index that misleads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw
import msgspec

from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.session_row import span
from everturn.core.codec import checksum
from everturn.core.paths import minus, size

SQL = statements.load("lost_entries.sql")


def first_missing(db: Connection, base: int, must: str, messages: int | None) -> int:
    """Find the first seq that is not stored; 0 if all are. An entry whose kind was damaged counts as missing.

    `messages`: how many messages there must be; None if that is not known.
    """
    wanted = [(first, last) for _, first, last in msgspec.json.decode(must)]
    count, found_messages = db.row(SQL["count_in_ranges"], (must, base))
    if count != size(wanted):
        there = db.rows(SQL["spans_in_ranges"], (must, base))
        return next((first for first, _ in minus(wanted, there)), wanted[-1][1])
    for seq, kind, check, body in db.execute(SQL["no_messages_in_ranges"], (must, base)):
        if checksum(kind, body) != check:
            return int(seq)
    if messages not in (None, found_messages):
        return wanted[-1][1] if wanted else 1
    return 0


def first_lost(db: Connection, base: int, must: str, kind: str | None, handed: Iterable[int]) -> int:
    """Find the first entry of this kind that is in the log and not among those `handed` over, because the index of
    kinds did not lead to it; 0 if there is none."""
    known = set(handed)
    rows = db.execute(SQL["no_messages_in_ranges"], (must, base))
    return next((seq for seq, found, *_ in rows if found == kind and seq not in known), 0)


class KnownTurns(msgspec.Struct, frozen=True):
    """Turns as the change log has them: number of entries and time, by first seq.

    The change log is on other pages than the entries, so it can be right where the page of an entry is damaged.

    The checksum of an entry covers its text only. Its seq and time come from the page it lies on. Where that page is
    damaged, the change log is the only other witness.
    """

    known: dict[int, tuple[int, float]]

    def confirmed(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Pass on the rows that are in order and agree with their turn, or whose turn is not remembered."""
        reached = 0
        for row in rows:
            seq, created_at, _, _, _, turn, count, *_ = row
            length, at = self.known.get(turn, (seq + count - turn, created_at))
            if reached < seq and turn <= seq and seq + count <= turn + length and at == created_at:
                reached = seq + count - 1
                yield row


def known_turns(db: Connection, no: int) -> KnownTurns:
    """Read the turns of the change log, as far as it can be read: damage there says nothing about the entries."""
    known: dict[int, tuple[int, float]] = {}
    try:
        for first, count, created_at in db.execute(SQL["turns"], span(no)):
            known[first] = count, created_at
    except apsw.Error as exc:
        if not page_checksums.is_damage(exc):
            raise
    return KnownTurns(known)
