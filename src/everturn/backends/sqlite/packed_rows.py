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

from everturn.backends.sqlite.row_checksums import NO_CHECKSUM, column_sum, sound_lines
from everturn.core.codec import Draft, EntryRow
from everturn.core.paths import Range
from everturn.model import MESSAGE

T = TypeVar("T")

MOST_LINES = 8  # messages in a row, and so how far a read looks back for the row that holds a seq
SHARED_BYTES = 3000  # of messages that share a row: together they stay within a page


class PackedRow(msgspec.Struct, frozen=True, gc=False):
    """One row of the table `entries`, not yet of a session.

    `checksum` is Adler-32 of the body. `lines` has Adler-32 of each line; None if there is one line.
    """

    seq: int  # of the first line
    kind: str
    count: int  # lines
    checksum: int
    lines: Sequence[int] | None
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
    return PackedRow(
        first, MESSAGE, count, adler32(body), [draft.checksum for draft in drafts], body, len(body) - count + 1
    )


def unpacked(row: Sequence[Any]) -> Iterator[EntryRow]:
    """Yield the entries of a row, given as seq, created_at, body_checksum, body, kind, turn, count, checksums.

    A damaged entry has NO_CHECKSUM. Where the lines of a row cannot be told apart, all of its entries have it.
    """
    seq, created_at, checksum, body, kind, turn, count, checksums = row
    if count == 1 and checksums is None:
        yield seq, created_at, checksum, body, kind, turn
        return
    lines = _lines(row) or [(body, NO_CHECKSUM)] * min(max(count, 1), MOST_LINES)
    for number, (line, check) in enumerate(lines):
        yield seq + number, created_at, check, line, kind, turn


def _lines(row: Sequence[Any]) -> list[tuple[bytes, int]] | None:
    """Split a row into lines with Adler-32 of each; NO_CHECKSUM where one is damaged. None: they cannot be told apart.

    In a damaged row, the checksums of its lines show which lines are damaged. If they show none, another column of the
    row was altered, and all lines count as damaged.
    """
    seq, created_at, checksum, body, _, turn, count, checksums = row
    lines = body.split(b"\n")
    if len(lines) != count:
        return None
    if adler32(body) == checksum:
        return [(line, adler32(line)) for line in lines]
    sound = sound_lines(lines, checksums, column_sum(seq, turn, count, created_at))
    if sound is None:
        return None
    told = not all(sound)
    return [
        (line, adler32(line) if is_sound and told else NO_CHECKSUM) for line, is_sound in zip(lines, sound, strict=True)
    ]


def has_its_checksums(row: Sequence[Any]) -> bool:
    """Whether every line of a row matches its checksum. (For a row of one line: whether `checksums` is None.)"""
    seq, created_at, _, body, _, turn, count, checksums = row
    if count == 1:
        return checksums is None
    sound = sound_lines(body.split(b"\n"), checksums, column_sum(seq, turn, count, created_at))
    return sound is not None and all(sound)


def cut_row(row: Sequence[Any], wanted: Iterable[Range]) -> list[PackedRow] | None:
    """Cut these ranges of entries out of a row, each as a row of its own. None: its entries cannot be told apart.

    Damage stays damage: a part with a damaged line is written with a checksum that it does not match.
    """
    lines = _lines(row)
    if lines is None:
        return None
    seq, kind = row[0], row[4]
    parts = [(first, [Draft(kind, *line) for line in lines[first - seq : last - seq + 1]]) for first, last in wanted]
    return [_row_of(first, part) if _is_sound(part) else _damaged_row_of(first, part) for first, part in parts]


def _is_sound(drafts: Iterable[Draft]) -> bool:
    return all(draft.checksum != NO_CHECKSUM for draft in drafts)


def _damaged_row_of(first: int, drafts: Sequence[Draft]) -> PackedRow:
    checksums = [adler32(draft.body) + (draft.checksum == NO_CHECKSUM) for draft in drafts]
    lines = checksums if len(drafts) > 1 else None
    return msgspec.structs.replace(_row_of(first, drafts), checksum=NO_CHECKSUM, lines=lines)


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
            if first <= row[0] <= last:
                yield from unpacked(row)
        else:
            yield from (entry for entry in unpacked(row) if first <= entry[0] <= last)
