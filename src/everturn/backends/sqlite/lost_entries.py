"""Notices entries that a read should have found and did not: deleted rows, damaged kinds, an index that misleads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import adler32

import msgspec

from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
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


def in_order(rows: Iterable[Any]) -> Iterator[Any]:
    """Pass on the rows whose seqs rise. On a damaged page, a row may stand twice, or in the place of another.

    A row that does not match its checksum says nothing about the rows behind it.
    """
    reached = 0
    for row in rows:
        seq, _, check, body, _, _, count, *_ = row
        if reached < seq:
            if adler32(body) == check:
                reached = seq + count - 1
            yield row
