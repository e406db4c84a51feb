"""Owns the comparison of two images: everything that differs, as values. How it reads is render.py's.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from everturn.testing.golden.database_image import Image, Table
from everturn.testing.golden.masks import Mask, Masking
from everturn.testing.golden.match_rows import Match, Matching


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has one value in the expected file and another in the actual one. None: it is not there."""

    name: str
    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class TableDifference:
    """How the rows of one table differ, in the columns that both sides have."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    rows: tuple[int, int]
    match: Match
    missing_columns: tuple[str, ...] = ()
    added_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs. `idle` are the masks that found nothing, which is no difference and yet wrong."""

    facts: tuple[Change, ...]
    schema: tuple[Change, ...]
    tables: tuple[TableDifference, ...]
    same_tables: tuple[str, ...]
    idle: tuple[str, ...]
    naming: Matching

    @property
    def is_none(self) -> bool:
        return not (self.facts or self.schema or self.tables)


def compare(expected: Image, actual: Image, masks: tuple[Mask, ...] = ()) -> Difference:
    """Compare all that the two hold. Rows and schema objects have no order; a table's rows may repeat."""
    masking = Masking(masks, (expected, actual))
    matching = Matching()
    shapes = []
    for name in sorted({*expected.tables, *actual.tables}):
        left, right = expected.tables.get(name), actual.tables.get(name)
        shape = _common(left, right)
        shapes.append(shape)
        for side, table in enumerate((left, right)):
            if table is not None:
                matching.add(side, name, masking.rows(_only(table, shape.columns)), key=shape.key)
    matches = matching.run()
    tables = [_with(shape, matches.get(shape.name, Match())) for shape in shapes]
    return Difference(
        facts=tuple(_changes(expected.facts, actual.facts)),
        schema=tuple(_changes(_sql(expected), _sql(actual))),
        tables=tuple(table for table in tables if not _is_same(table)),
        same_tables=tuple(table.name for table in tables if _is_same(table)),
        idle=tuple(masking.idle()),
        naming=matching,
    )


def _common(left: Table | None, right: Table | None) -> TableDifference:
    """What is left to compare where columns were added or taken away: their rows are the schema's difference."""
    tables = [table for table in (left, right) if table is not None]
    first, last = tables[0], tables[-1]
    columns = tuple(column for column in first.columns if column in last.columns)
    keys = [[table.columns[place] for place in table.key] for table in tables]
    has_key = keys[0] == keys[-1] and set(keys[0]) <= set(columns)
    return TableDifference(
        name=first.name,
        columns=columns,
        key=tuple(columns.index(column) for column in keys[0]) if has_key else (),
        rows=(len(left.rows) if left else 0, len(right.rows) if right else 0),
        match=Match(),
        missing_columns=tuple(column for column in first.columns if column not in last.columns),
        added_columns=tuple(column for column in last.columns if column not in first.columns),
    )


def _only(table: Table, columns: tuple[str, ...]) -> Table:
    if columns == table.columns:
        return table
    places = [table.columns.index(column) for column in columns]
    return Table(table.name, columns, (), [tuple(row[place] for place in places) for row in table.rows])


def _with(shape: TableDifference, match: Match) -> TableDifference:
    return TableDifference(
        shape.name, shape.columns, shape.key, shape.rows, match, shape.missing_columns, shape.added_columns
    )


def _is_same(table: TableDifference) -> bool:
    match = table.match
    return not (match.changed or match.missing or match.added or table.missing_columns or table.added_columns)


def _sql(image: Image) -> dict[str, str]:
    return {name: each.sql for name, each in image.schema.items()}


def _changes(
    expected: dict[str, str] | dict[str, int | str], actual: dict[str, str] | dict[str, int | str]
) -> list[Change]:
    names = dict.fromkeys((*expected, *actual))
    found = [Change(name, expected.get(name), actual.get(name)) for name in names]
    return [change for change in found if change.expected != change.actual]
