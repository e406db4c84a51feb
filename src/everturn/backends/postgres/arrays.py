"""Arrays as PostgreSQL takes them. psycopg's own lists cost more than the rest of a request together.

Texts and byte strings travel in PostgreSQL's binary format, numbers as the text of an array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, ClassVar

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper

_length = struct.Struct("!i").pack
_head = struct.Struct("!iiiii").pack  # dimensions, NULLs, type, elements, the first one's number


class Texts(tuple[bytes, ...]):
    """UTF-8 texts that travel as one text[]."""

    __slots__ = ()
    element_oid: ClassVar[int] = 25


class ByteStrings(tuple[bytes, ...]):
    """Byte strings that travel as one bytea[]."""

    __slots__ = ()
    element_oid: ClassVar[int] = 17


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Texts | ByteStrings) -> bytes:
        if not obj:
            return struct.pack("!iii", 0, 0, obj.element_oid)
        parts = [_head(1, 0, obj.element_oid, len(obj), 1)]
        for element in obj:
            parts += _length(len(element)), element
        return b"".join(parts)  # one join: bodies can be many megabytes, and are copied once


class _TextsDumper(_ArrayDumper):
    oid = 1009


class _ByteStringsDumper(_ArrayDumper):
    oid = 1001


def register(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Let a connection send these types. Its other settings stay."""
    connection.adapters.register_dumper(Texts, _TextsDumper)
    connection.adapters.register_dumper(ByteStrings, _ByteStringsDumper)


def numbers(values: Iterable[float | str]) -> str:
    """Numbers (or "NULL") as the text of an array, which the function that takes it casts."""
    return "{" + ",".join(map(str, values)) + "}"
