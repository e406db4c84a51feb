"""Packed rows: messages of one turn share a row of the table `entries`, a line each. Pure: no IO.

A conversation is read as a whole, and a row costs more than the bytes in it. Only messages share a row; an entry of
another kind has a row of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import add, itemgetter
from typing import Any, TypeVar
from zlib import adler32

import msgspec

from everturn.backends.sqlite import line_checksums
from everturn.core.codec import Draft, EntryRow
from everturn.core.paths import Range
from everturn.model import MESSAGE

T = TypeVar("T")

MOST_LINES = 8  # messages in a row, and so how far a read looks back for the row that holds a seq
NO_CHECKSUM = -1  # a number that is no Adler-32: an entry with it is always corrupt
SHARED_BYTES = 3000  # of messages that share a row: together they stay within a page


class PackedRow(msgspec.Struct, frozen=True, gc=False):
    """One row of the table `entries`.

    `checksum` is Adler-32 of the body. `checksums` has Adler-32 of every line but the last; None if there is one line.
    """

    seq: int  # of the first line
    kind: str
    count: int  # lines
    checksum: int
    checksums: bytes | None
    body: bytes
    size: int  # bytes of the lines, without the newlines between them


def earliest_start(seq: int, path: Sequence[Range] = ()) -> int:
    """Compute the least seq at which the row that holds this seq can begin. No row reaches across the start of a range
    of the path."""
    near = bisect_right(path, seq, key=itemgetter(0)) - 1
    return max(1, seq - MOST_LINES + 1, path[near][0] if near >= 0 else 1)


def packed(first: int, drafts: Sequence[Draft]) -> list[PackedRow]:
    """Pack a turn whose first entry has this seq into rows, in order."""
    rows: list[PackedRow] = []
    row: list[Draft] = []
    room = SHARED_BYTES
    for draft in drafts:
        size = len(draft.body) if draft.kind == MESSAGE else SHARED_BYTES + 1  # of another kind: it fits no shared row
        if row and (size > room or len(row) == MOST_LINES):
            rows.append(_row_of(first, row))
            first, row, room = first + len(row), [], SHARED_BYTES
        row.append(draft)
        room -= size
    if row:
        rows.append(_row_of(first, row))
    return rows


def _row_of(first: int, drafts: Sequence[Draft]) -> PackedRow:
    if len(drafts) == 1:
        (draft,) = drafts
        return PackedRow(first, draft.kind, 1, draft.checksum, None, draft.body, len(draft.body))
    count = len(drafts)
    body = b"\n".join([draft.body for draft in drafts])
    checksums = line_checksums.stored([draft.checksum for draft in drafts])
    return PackedRow(first, MESSAGE, count, adler32(body), checksums, body, len(body) - count + 1)


def unpacked(row: Sequence[Any]) -> Iterator[EntryRow]:
    """Yield the entries of a row, given as seq, created_at, checksum, body, kind, turn, count, checksums.

    In a damaged row, the checksums of its lines tell which of them is damaged. Where the lines cannot be told apart,
    every entry has NO_CHECKSUM.
    """
    seq, created_at, checksum, body, kind, turn, count, checksums = row
    if count == 1 and checksums is None:
        yield seq, created_at, checksum, body, kind, turn
        return
    lines = body.split(b"\n")
    if len(lines) == count and adler32(body) == checksum:
        checks = list(map(adler32, lines))
    elif len(lines) == count and len(checksums or b"") == line_checksums.WIDTH * (count - 1):
        checks = line_checksums.as_written(checksum, checksums, lines)
    else:
        lines = [body] * min(max(count, 1), MOST_LINES)
        checks = [NO_CHECKSUM] * len(lines)
    for number, (line, check) in enumerate(zip(lines, checks, strict=True)):
        yield seq + number, created_at, check, line, kind, turn


def has_its_checksums(row: Sequence[Any]) -> bool:
    """Whether both checksum columns of a row fit its body. (For a row of one line: whether `checksums` is None.)"""
    _, _, checksum, body, _, _, count, checksums = row
    if count == 1:
        return checksums is None
    return (checksum, checksums) == (adler32(body), line_checksums.stored([*map(adler32, body.split(b"\n"))]))


def cut_row(row: Sequence[Any], wanted: Iterable[Range]) -> list[PackedRow] | None:
    """Cut these ranges of entries out of a row, each as a row of its own. None: its entries cannot be told apart.

    Damage stays damage: a new row gets the checksum of the lines as they were written.
    """
    entries = [Draft(kind, body, check) for _, _, check, body, kind, _ in unpacked(row)]
    if any(entry.checksum == NO_CHECKSUM for entry in entries):
        return None
    cut = [(first, entries[first - row[0] : last - row[0] + 1]) for first, last in wanted]
    return [msgspec.structs.replace(_row_of(first, some), checksum=_as_written(some)) for first, some in cut]


def _as_written(entries: Sequence[Draft]) -> int:
    return line_checksums.of_row([entry.checksum for entry in entries], [entry.body for entry in entries])


# --- several rows ----------------------------------------------------------------------------------------------------


def seqs_of(firsts: tuple[int, ...], counts: tuple[int, ...]) -> Sequence[int]:
    """List the seqs of the entries of rows, given each row's first seq and count. There is at least one row."""
    *starts, end = accumulate(counts, initial=firsts[0])
    if firsts == tuple(starts):
        return range(firsts[0], end)  # the rows follow each other, as nearly always
    return [*chain.from_iterable(map(range, firsts, map(add, firsts, counts)))]


def repeated(values: Iterable[T], counts: Iterable[int]) -> Iterable[T]:
    """Repeat the value of each row for each of its entries."""
    return chain.from_iterable(map(repeat, values, counts))


def entries_within(rows: Iterable[Any]) -> Iterator[EntryRow]:
    """Yield the entries of rows that lie in the range each row was found for: first and last seq, its last columns."""
    for *row, first, last in rows:
        if row[6] == 1:
            if first <= row[0]:
                yield from unpacked(row)
        else:
            yield from (entry for entry in unpacked(row) if first <= entry[0] <= last)


def cut_rows(rows: Iterable[Any]) -> list[tuple[int, float, int, bytes, int]] | None:
    """Cut rows of messages to the range each was found for: seq, created_at, checksum, body and count of the part.

    None: one of them is damaged. In a history that was edited often, nearly every row is wanted in part. Its lines need
    no check each, because the checksum of the row covers all of them.
    """
    cut: list[tuple[int, float, int, bytes, int]] = []
    for seq, created_at, checksum, body, _, _, count, _, low, high in rows:
        first, last = max(seq, low), min(seq + count - 1, high)
        part = body
        if last - first + 1 != count:
            lines = body.split(b"\n")
            if len(lines) != count or adler32(body) != checksum:
                return None
            part = b"\n".join(lines[first - seq : last - seq + 1])
            checksum = adler32(part)  # noqa: PLW2901
        cut.append((first, created_at, checksum, part, last - first + 1))
    return cut
