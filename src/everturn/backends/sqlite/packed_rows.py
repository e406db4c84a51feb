"""Rows that hold several messages: those of a turn lie together, a line each. Pure: it reads and writes no rows.

A conversation is read as a whole, and a row costs more than what is in it. Only messages lie together; an entry of
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

from everturn.core.codec import Draft, EntryRow
from everturn.core.paths import Range
from everturn.model import MESSAGE

T = TypeVar("T")

MOST_LINES = 8  # messages in a row: as far as one has to look back for the row that holds a seq
NO_CHECKSUM = -1  # a checksum that nothing has
_ADLER, _NEWLINE = 65521, adler32(b"\n")  # the modulus of Adler-32
SHARED_BYTES = 3000  # bytes of messages that share a row: together they stay within a page


class PackedRow(msgspec.Struct, frozen=True, gc=False):
    """What one row holds. `checksum` is that of the body; `checksums`, if it has several lines, those of all but the
    last, whose follows from the others: four bytes repeated, the highest first."""

    seq: int
    kind: str
    count: int
    checksum: int
    checksums: bytes | None
    body: bytes
    size: int  # the bytes of the entries' bodies


def earliest_start(seq: int, path: Sequence[Range] = ()) -> int:
    """Where the row that holds this seq can begin, at the earliest. No row reaches into a range of a path."""
    near = bisect_right(path, seq, key=itemgetter(0)) - 1
    return max(1, seq - MOST_LINES + 1, path[near][0] if near >= 0 else 1)


def packed(first: int, drafts: Sequence[Draft]) -> list[PackedRow]:
    """The rows of a turn whose first entry has this seq."""
    rows: list[PackedRow] = []
    row: list[Draft] = []
    room = SHARED_BYTES
    for draft in drafts:
        size = len(draft.body) if draft.kind == MESSAGE else SHARED_BYTES + 1  # what is no message has a row of its own
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
    bodies, checks = [], []
    for draft in drafts:
        bodies.append(draft.body)
        checks.append(draft.checksum.to_bytes(4, "big"))
    del checks[-1]
    body = b"\n".join(bodies)
    return PackedRow(first, MESSAGE, count, adler32(body), b"".join(checks), body, len(body) - count + 1)


def unpacked(row: Sequence[Any]) -> Iterator[EntryRow]:
    """The entries of a row: seq, created_at, checksum, body, kind, turn, count, checksums.

    If the row is damaged, the checksums of its lines tell which of them is. Where they cannot be told apart, every
    entry has a checksum that is none.
    """
    seq, created_at, checksum, body, kind, turn, count, checksums = row
    if count == 1 and checksums is None:
        yield seq, created_at, checksum, body, kind, turn
        return
    lines = body.split(b"\n")
    if len(lines) == count and adler32(body) == checksum:
        checks = list(map(adler32, lines))
    elif len(lines) == count and len(checksums or b"") == 4 * count - 4:
        checks = _as_written(checksum, checksums, lines)
    else:
        lines = [body] * min(max(count, 1), MOST_LINES)
        checks = [NO_CHECKSUM] * len(lines)
    for number, (line, check) in enumerate(zip(lines, checks, strict=True)):
        yield seq + number, created_at, check, line, kind, turn


def has_its_checksums(row: Sequence[Any]) -> bool:
    """Whether the checksums of a row with several entries are as they were written."""
    _, _, checksum, body, _, _, count, checksums = row
    if count == 1:
        return checksums is None
    return (checksum, checksums) == (adler32(body), _checksums(body))


def cut_row(row: Sequence[Any], wanted: Iterable[Range]) -> list[PackedRow] | None:
    """These ranges of a row's entries, each as a row of its own. None: its entries cannot be told apart.

    What is damaged stays so: a part has the checksum that fits what was written, and not the damage.
    """
    entries = [Draft(kind, body, check) for _, _, check, body, kind, _ in unpacked(row)]
    if any(entry.checksum == NO_CHECKSUM for entry in entries):
        return None
    cut = [(first, entries[first - row[0] : last - row[0] + 1]) for first, last in wanted]
    return [msgspec.structs.replace(_row_of(first, some), checksum=_of_all(some)) for first, some in cut]


# --- checksums of lines ----------------------------------------------------------------------------------------------


def _checksums(body: bytes) -> bytes:
    """Those that are stored: of all lines but the last."""
    return b"".join([adler32(line).to_bytes(4, "big") for line in body.split(b"\n")[:-1]])


def _as_written(checksum: int, checksums: bytes, lines: Sequence[bytes]) -> list[int]:
    """The checksums of all lines, as they were when the row was written."""
    checks = [int.from_bytes(checksums[at : at + 4], "big") for at in range(0, len(checksums), 4)]
    return [*checks, _behind(_each_ended(checks, lines), checksum, len(lines[-1]))]


def _of_all(entries: Sequence[Draft]) -> int:
    """The checksum of a row of these entries, from theirs."""
    checks, lines = [entry.checksum for entry in entries], [entry.body for entry in entries]
    return _joined(_each_ended(checks[:-1], lines), checks[-1], len(lines[-1]))


def _each_ended(checks: Iterable[int], lines: Iterable[bytes]) -> int:
    """The checksum of lines that each end with a newline, as many as there are checksums."""
    so_far = adler32(b"")
    for check, line in zip(checks, lines, strict=False):
        so_far = _joined(_joined(so_far, check, len(line)), _NEWLINE, 1)
    return so_far


def _joined(first: int, second: int, length: int) -> int:
    """Adler-32 of two pieces together, from theirs; the second has this length.

    It is two sums: of the bytes in its lower half, and in its upper half of what the lower has been after each byte.
    """
    low, high = first & 0xFFFF, first >> 16
    return (high + (second >> 16) + length * (low - 1)) % _ADLER << 16 | (low + (second & 0xFFFF) - 1) % _ADLER


def _behind(first: int, both: int, length: int) -> int:
    """The inverse: Adler-32 of the second piece, from that of the first and of both."""
    low, high = first & 0xFFFF, first >> 16
    return ((both >> 16) - high - length * (low - 1)) % _ADLER << 16 | ((both & 0xFFFF) - low + 1) % _ADLER


# --- several rows ----------------------------------------------------------------------------------------------------


def seqs_of(firsts: tuple[int, ...], counts: tuple[int, ...]) -> Sequence[int]:
    """The seqs of the entries of rows."""
    *starts, end = accumulate(counts, initial=firsts[0])
    if firsts == tuple(starts):
        return range(firsts[0], end)  # one follows the other, as nearly always
    return [*chain.from_iterable(map(range, firsts, map(add, firsts, counts)))]


def repeated(values: Iterable[T], counts: Iterable[int]) -> Iterable[T]:
    """The values of rows as those of their entries."""
    return chain.from_iterable(map(repeat, values, counts))


def entries_within(rows: Iterable[Any]) -> Iterator[EntryRow]:
    """The entries of rows, as far as they stand in the range that a row was found for: its last two columns."""
    for *row, first, last in rows:
        if row[6] == 1:
            if first <= row[0]:
                yield from unpacked(row)
        else:
            yield from (entry for entry in unpacked(row) if first <= entry[0] <= last)


def cut_rows(rows: Iterable[Any]) -> list[tuple[int, float, int, bytes, int]] | None:
    """Rows of messages as seq, created_at, checksum, body and count of what is wanted of them. None: one is damaged.

    In a history that was edited often nearly every row is wanted in part. Its lines need no look at each: the checksum
    of the row is that of all of them.
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
