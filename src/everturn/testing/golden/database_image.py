"""The logical content of a database as a value: equal for two files with the same rows, also if their bytes differ.

Pure. read_database.py makes images, compare.py compares them.
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
    """Make a value that is equal to another only if both cells have the same type and content.

    In Python 1.0 == 1 and -0.0 == 0.0, so real numbers are compared by their bits.
    """
    return ("real", struct.pack(">d", cell)) if type(cell) is float else cell


@dataclass(frozen=True, slots=True)
class TableImage:
    """The rows of a table, in no order. `key` has the indexes of the primary key's columns."""

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
class DatabaseImage:
    """Everything in a database that is compared.

    `problems` are from integrity_check, `dangling` from foreign_key_check.
    """

    facts: dict[str, int | str] = field(default_factory=dict)
    schema: dict[str, SchemaObject] = field(default_factory=dict)
    tables: dict[str, TableImage] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    dangling: tuple[str, ...] = ()
