"""Compares two images. Returns everything that differs, as values; render.py makes text of it.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from everturn.testing.golden.database_image import DatabaseImage, TableImage
from everturn.testing.golden.masks import Mask, Masking
from everturn.testing.golden.match_rows import RowMatching, TableMatch


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A fact or schema object with different values in the expected and the actual file. None: it is missing."""

    name: str
    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class TableDifference:
    """Differences of one table's rows, in the columns that both sides have."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    rows: tuple[int, int]
    match: TableMatch
    missing_columns: tuple[str, ...] = ()
    added_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseDifference:
    """Everything that differs. `idle` are masks that found nothing: not a difference, but an error."""

    facts: tuple[ValueChange, ...]
    schema: tuple[ValueChange, ...]
    tables: tuple[TableDifference, ...]
    same_tables: tuple[str, ...]
    idle: tuple[str, ...]
    naming: RowMatching

    @property
    def is_none(self) -> bool:
        return not (self.facts or self.schema or self.tables)


def compare(expected: DatabaseImage, actual: DatabaseImage, masks: tuple[Mask, ...] = ()) -> DatabaseDifference:
    """Compare two images. Rows and schema objects have no order; a table may hold equal rows."""
    masking = Masking(masks, (expected, actual))
    matching = RowMatching()
    shapes = []
    for name in sorted({*expected.tables, *actual.tables}):
        left, right = expected.tables.get(name), actual.tables.get(name)
        shape = _common(left, right)
        shapes.append(shape)
        for side, table in enumerate((left, right)):
            if table is not None:
                matching.add(side, name, masking.rows(_only(table, shape.columns)), key=shape.key)
    matches = matching.run()
    tables = [_with(shape, matches.get(shape.name, TableMatch())) for shape in shapes]
    return DatabaseDifference(
        facts=tuple(_changes(expected.facts, actual.facts)),
        schema=tuple(_changes(_sql(expected), _sql(actual))),
        tables=tuple(table for table in tables if not _is_same(table)),
        same_tables=tuple(table.name for table in tables if _is_same(table)),
        idle=tuple(masking.idle()),
        naming=matching,
    )


def _common(left: TableImage | None, right: TableImage | None) -> TableDifference:
    """Find the columns that both sides have. Added and missing columns are differences of the schema."""
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
        match=TableMatch(),
        missing_columns=tuple(column for column in first.columns if column not in last.columns),
        added_columns=tuple(column for column in last.columns if column not in first.columns),
    )


def _only(table: TableImage, columns: tuple[str, ...]) -> TableImage:
    if columns == table.columns:
        return table
    places = [table.columns.index(column) for column in columns]
    return TableImage(table.name, columns, (), [tuple(row[place] for place in places) for row in table.rows])


def _with(shape: TableDifference, match: TableMatch) -> TableDifference:
    return TableDifference(
        shape.name, shape.columns, shape.key, shape.rows, match, shape.missing_columns, shape.added_columns
    )


def _is_same(table: TableDifference) -> bool:
    match = table.match
    return not (match.changed or match.missing or match.added or table.missing_columns or table.added_columns)


def _sql(image: DatabaseImage) -> dict[str, str]:
    return {name: each.sql for name, each in image.schema.items()}


def _changes(
    expected: dict[str, str] | dict[str, int | str], actual: dict[str, str] | dict[str, int | str]
) -> list[ValueChange]:
    names = dict.fromkeys((*expected, *actual))
    found = [ValueChange(name, expected.get(name), actual.get(name)) for name in names]
    return [change for change in found if change.expected != change.actual]
