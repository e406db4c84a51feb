"""Checksums of rows: each covers all columns of its row, including those that name its session. Pure: no IO.

A row that lies where another should, or of which one bit was flipped, does not match (docs/decisions/029). Rows of the
log are checked by the generated column `body_checksum`, which SQLite computes; schema/003.sql has the same sum as here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from zlib import adler32, crc32

import msgspec

NO_CHECKSUM = -1  # a number that is no Adler-32: an entry with it is always corrupt
PRIME = 65521  # the checksum of a line is a number below it: two bytes
_WORD = 2**32
_HALF = 2**31
_TICKS = 4194304.0  # in a second: times since 2004 and until 2038 are a whole number of them
_GREATEST = 2**63 - 1
_encode = msgspec.msgpack.Encoder().encode


# --- sessions, jumps, snapshots, undo steps, changes -----------------------------------------------------------------


def of_row(*columns: Any) -> int:
    """Compute CRC-32 of the MessagePack array of a row's columns, in the order of the table."""
    return crc32(_encode(columns))


def sealed(*columns: Any) -> tuple[Any, ...]:
    """Append the checksum of a row to its columns."""
    return *columns, crc32(_encode(columns))


def unsealed(row: Sequence[Any], called: str) -> Sequence[Any]:
    """Return the columns of a row without its checksum, the last column. Raises ValueError if they do not match it."""
    columns = row[:-1]
    if crc32(_encode(columns)) != row[-1]:
        raise ValueError(f"{called} {columns[0]!a} does not match its checksum")
    return columns


def refuse_unsealed(rows: list[Any], called: str) -> list[Any]:
    """Return rows with their checksums. Raises ValueError if one does not match."""
    if [crc32(_encode(row[:-1])) for row in rows] != [row[-1] for row in rows]:
        for row in rows:
            unsealed(row, called)
    return rows


def all_unsealed(rows: Iterable[Sequence[Any]], called: str, bad: list[str] | None = None) -> Iterator[Sequence[Any]]:
    """Yield rows without their checksums. `bad` collects the rows that do not match, which are left out."""
    for row in rows:
        try:
            columns = unsealed(row, called)
        except ValueError as exc:
            if bad is None:
                raise
            bad.append(str(exc))
        else:
            yield columns


def seconds(value: float) -> float:
    """Write a number as a REAL column gives it back: 3 as 3.0, and -0.0 as 0.0."""
    return value + 0.0


# --- entries ---------------------------------------------------------------------------------------------------------


def column_sum(seq: int, turn: int, count: int, created_at: float) -> int:
    """Add up the columns of a row of the log, except its body, its kind, and the number of its session."""
    ticks = int(created_at * _TICKS)
    if not 0 <= ticks <= _GREATEST:  # no time of a clock; SQLite keeps it within 64 bits, and gives `%` its sign
        ticks = max(-_GREATEST - 1, min(ticks, _GREATEST))
        return seq + turn * 65599 + count * 16777619 + int(math.copysign(abs(ticks) % 4294967291, ticks))
    return seq + turn * 65599 + count * 16777619 + ticks % 4294967291


def shift(sessions: int) -> int:
    """Compute how much the checksum of a row of the log grows if its session's number is greater by this many."""
    return sessions * 1000003 % _WORD


def of_entries(body_checksum: int, number: int, columns: int) -> int:
    """Compute the column `checksum` of a row of the log. `columns`: its `column_sum`."""
    return (body_checksum + number * 1000003 + columns) % _WORD - _HALF


def of_lines(checksums: Iterable[int], columns: int) -> bytes:
    """Encode the column `checksums` from Adler-32 of the lines: two bytes each, the highest first."""
    return b"".join([((checksum + columns) % PRIME).to_bytes(2) for checksum in checksums])


def sound_lines(lines: Sequence[bytes], checksums: bytes | None, columns: int) -> list[bool] | None:
    """Tell which lines of a row match their checksums. None: there are not as many checksums as lines."""
    if checksums is None or len(checksums) != 2 * len(lines):
        return None
    stored = struct.unpack(f">{len(lines)}H", checksums)
    return [(adler32(line) + columns) % PRIME == check for line, check in zip(lines, stored, strict=True)]
