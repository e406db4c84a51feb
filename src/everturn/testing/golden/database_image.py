"""Owns the logical image of a database: what two files have in common if they hold the same, whatever their bytes are.

Pure. read_database.py makes images, comparing is left to others.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BadText:
    """Text whose bytes are not valid in the encoding of its database."""

    raw: bytes


Cell = None | int | float | str | bytes | BadText
Row = tuple[Cell, ...]


def exact(cell: Cell) -> object:
    """A value that is equal to another's only if the two cells have the same type and the same content.

    To Python 1.0 is 1 and -0.0 is 0.0, so a real number goes by its bits.
    """
    return ("real", struct.pack(">d", cell)) if type(cell) is float else cell


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table, in no order. `key` are the places of the primary key's columns, if it has one."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """A table, index, view or trigger, by the SQL that makes it."""

    kind: str
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Image:
    """Everything in a database that is compared.

    And what is wrong with it: `problems` are from integrity_check, `dangling` from foreign_key_check.
    """

    facts: dict[str, int | str] = field(default_factory=dict)
    schema: dict[str, SchemaObject] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    dangling: tuple[str, ...] = ()
