"""Renders a difference, or a whole database, as text, for people and for `git diff`. It decides nothing.

Pure. Contents of a database are foreign text: control characters are shown escaped.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator

from everturn.testing.golden.compare import DatabaseDifference, TableDifference, ValueChange
from everturn.testing.golden.database_image import BadText, Cell, DatabaseImage
from everturn.testing.golden.masks import MaskedCell, MaskedRow, MaskedValue
from everturn.testing.golden.match_rows import RowMatching

_CELL = 48  # characters of a value; two of them and a name fit a screen
_LINE = 100
_KNOWN_BY = 3  # columns that identify a row without a key


def show(image: DatabaseImage) -> Iterator[str]:
    """Yield a whole image as text, one line per row, for `git diff`."""
    for name, value in image.facts.items():
        yield f"{name} = {value}"
    for _, each in sorted(image.schema.items()):
        yield ""
        yield from map(_visible, f"{each.sql};".splitlines())
    for _, table in sorted(image.tables.items()):
        yield ""
        yield f"{table.name} ({_count(len(table.rows), 'row')})"
        for row in sorted(table.rows, key=lambda row: _order(row, table.key)):
            yield f"  {_assigned(table.columns, [_plain(cell) for cell in row])}"
    for line in (*image.problems, *image.dangling):
        yield f"! {line}"


def render(difference: DatabaseDifference, *, limit: int | None = None) -> Iterator[str]:
    """Yield counts by table, then each table's rows; at most `limit` rows of a kind in a table."""
    yield from _counts(difference)
    if difference.facts:
        yield ""
        yield from (f"{fact.name}: {fact.expected} expected, {fact.actual} found" for fact in difference.facts)
    if difference.schema:
        yield ""
        for change in difference.schema:
            yield from _schema(change)
    numbers = _Placeholders(difference.naming)
    for table in difference.tables:
        yield ""
        yield from _table(table, numbers, limit)


# --- counts ----------------------------------------------------------------------------------------------------------


def _counts(difference: DatabaseDifference) -> Iterator[str]:
    if difference.tables:
        head = ("table", "expected", "actual", "missing", "added", "changed")
        lines = [head, *(_counted(table) for table in difference.tables)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for name, *numbers in lines:
            cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            yield f"  {name.ljust(widths[0])}  {'  '.join(cells)}"
    if difference.same_tables:
        yield f"  the same: {', '.join(difference.same_tables)}"


def _counted(table: TableDifference) -> tuple[str, ...]:
    match = table.match
    counts = (len(match.missing), len(match.added), len(match.changed))
    return (
        table.name,
        *(f"{number:,}" for number in table.rows),
        *(f"{number:,}" if number else "-" for number in counts),
    )


# --- the schema ------------------------------------------------------------------------------------------------------


def _schema(change: ValueChange) -> Iterator[str]:
    if change.actual is None:
        yield f"{change.name} is missing"
    elif change.expected is None:
        yield f"{change.name} was not expected"
    else:
        yield f"{change.name} is another"
    before, after = (str(sql).splitlines() if sql is not None else [] for sql in (change.expected, change.actual))
    if len(before) == len(after) == 1:
        before, after = ([line] for line in _shorten_to_change(before[0], after[0], _LINE))
    for line in difflib.unified_diff(before, after, n=1, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"  {line[0]} {_visible(line[1:])}"


# --- rows ------------------------------------------------------------------------------------------------------------


def _table(table: TableDifference, numbers: _Placeholders, limit: int | None) -> Iterator[str]:
    key = [table.columns[place] for place in table.key]
    yield table.name + (f", by {', '.join(key)}" if key else "")
    for word, columns in (("missing", table.missing_columns), ("added", table.added_columns)):
        if columns:
            yield f"  {word} {'columns' if len(columns) > 1 else 'column'}: {', '.join(columns)}"
    match = table.match
    yield from _whole_rows("-", table, numbers.of(0), match.missing, limit)
    yield from _whole_rows("+", table, numbers.of(1), match.added, limit)
    changed = sorted(match.changed, key=lambda pair: _order(pair[0].cells, table.key))
    yield from _changed_rows(table, numbers, changed[:limit])
    yield from _rest("changed", len(changed), limit)


def _whole_rows(
    sign: str, table: TableDifference, numbers: _OneSide, rows: list[MaskedRow], limit: int | None
) -> Iterator[str]:
    for row in sorted(rows, key=lambda row: _order(row.cells, table.key))[:limit]:
        cells = [_cut(numbers.cell(row, place), _CELL) for place in range(len(table.columns))]
        yield f"  {sign} {_assigned(table.columns, cells)}"
    yield from _rest({"-": "missing", "+": "added"}[sign], len(rows), limit)


def _changed_rows(
    table: TableDifference, numbers: _Placeholders, pairs: list[tuple[MaskedRow, MaskedRow]]
) -> Iterator[str]:
    """Yield the changed cells of each row, side by side."""
    rows = [_changed_cells(table, numbers, *pair) for pair in pairs]
    cells = [("", "expected", "actual"), *(cell for _, changed in rows for cell in changed)]
    names, width = (max(len(cell[place]) for cell in cells) for place in (0, 1))
    if pairs:
        yield f"    {'':{names}}  {'expected':{width}}  actual"
    for key, changed in rows:
        yield f"  ~ {key}"
        for column, before, after in changed:
            yield f"    {column:{names}}  {before:{width}}  {after}"


def _changed_cells(
    table: TableDifference, numbers: _Placeholders, expected: MaskedRow, actual: MaskedRow
) -> tuple[str, list[tuple[str, str, str]]]:
    left, right = numbers.of(0), numbers.of(1)
    places = range(len(table.columns))
    changed = [place for place in places if not numbers.naming.is_same_cell(expected, actual, place)]
    known_by = table.key or [place for place in places if place not in changed][:_KNOWN_BY]
    key = _assigned(
        [table.columns[place] for place in known_by], [_cut(left.cell(expected, place), _CELL) for place in known_by]
    )
    cells = [
        (table.columns[place], *_shorten_to_change(left.cell(expected, place), right.cell(actual, place), _CELL))
        for place in changed
    ]
    return key, cells


def _rest(what: str, count: int, limit: int | None) -> Iterator[str]:
    if limit is not None and count > limit:
        yield f"  ... and {count - limit:,} more {what}"


def _assigned(columns: Iterable[str], cells: Iterable[str]) -> str:
    return ", ".join(f"{column}={cell}" for column, cell in zip(columns, cells, strict=True))


def _order(row: Iterable[Cell], key: tuple[int, ...]) -> tuple[object, ...]:
    """Make a sort key: primary key first, then the rest, in SQLite's order: NULL, numbers, text, blobs."""
    cells = tuple(row)
    return tuple(map(_rank, (*(cells[place] for place in key), *cells)))


def _rank(cell: Cell) -> tuple[int, int | float | str | bytes]:
    if cell is None:
        return (0, 0)
    if isinstance(cell, int | float):
        return (1, cell)
    if isinstance(cell, str):
        return (2, cell)
    return (3, cell.raw if isinstance(cell, BadText) else cell)


# --- values ----------------------------------------------------------------------------------------------------------


class _Placeholders:
    """Numbers for masked values, in the order they are first shown: the same for a value and its counterpart."""

    def __init__(self, naming: RowMatching) -> None:
        self.naming = naming
        self._numbers: dict[object, int] = {}
        self._counts: dict[str, int] = {}

    def of(self, side: int) -> _OneSide:
        return _OneSide(self, side)

    def word(self, side: int, value: MaskedValue) -> str:
        name = self.naming.name(side, value)
        who: object = name if name is not None else (side, value)
        if who not in self._numbers:
            self._counts[value.word] = self._counts.get(value.word, 0) + 1
            self._numbers[who] = self._counts[value.word]
        return f"<{value.word} {self._numbers[who]}>"


class _OneSide:
    def __init__(self, placeholders: _Placeholders, side: int) -> None:
        self._placeholders = placeholders
        self._side = side

    def cell(self, row: MaskedRow, place: int) -> str:
        """Show a cell, with placeholders for masked values."""
        hole = row.shape[place]
        if not isinstance(hole, MaskedCell):
            return _plain(row.cells[place])
        values = [value for value, where in zip(row.values, row.places, strict=True) if where == place]
        words = self._words(hole, values)
        if not hole.around:
            return words[0]
        text = hole.around[0] + "".join(word + after for word, after in zip(words, hole.around[1:], strict=True))
        return repr(text)

    def _words(self, hole: MaskedCell, values: list[MaskedValue]) -> list[str]:
        rest = iter(values)
        time = "<time>" if hole.type == "text" else f"<{hole.type} time>"
        return [time if word == "time" else self._placeholders.word(self._side, next(rest)) for word in hole.words]


def _plain(cell: Cell) -> str:
    """Show a value so that its type is visible: NULL, 1, 1.0, 'text', x'00ff'."""
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'" if len(cell) < 8 else f"x'{cell.hex()}' ({len(cell):,} bytes)"
    if isinstance(cell, BadText):
        return f"text x'{cell.raw.hex()}' (no valid text)"
    return repr(cell)


def _shorten_to_change(left: str, right: str, width: int) -> tuple[str, str]:
    """Shorten both texts so that the first difference is visible."""
    if _looks_same(left, right):
        left, right = (text.encode("ascii", "backslashreplace").decode() for text in (left, right))
    if max(len(left), len(right)) <= width:
        return left, right
    alike = next(
        (place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    start = max(0, min(alike - width // 3, max(len(left), len(right)) - width))
    return _cut(left, width, start), _cut(right, width, start)


def _looks_same(left: str, right: str) -> bool:
    return left != right and unicodedata.normalize("NFKC", left) == unicodedata.normalize("NFKC", right)


def _cut(text: str, width: int, start: int = 0) -> str:
    piece = text[start : start + width]
    return ("…" if start else "") + piece + ("…" if start + width < len(text) else "")


def _visible(text: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
