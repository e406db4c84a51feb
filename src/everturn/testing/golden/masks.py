"""Masks: which values of a database are volatile, and the part of them that is compared.

Pure. match_rows.py finds out which masked value of one side is which of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from everturn.testing.golden.database_image import BadText, Cell, DatabaseImage, Row, TableImage, exact
from everturn.testing.golden.errors import GoldenError

_UUID = r"(?<![0-9A-Za-z-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z-])"
_ULID = r"(?<![0-9A-Za-z])(?:[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-7][0-9a-hjkmnp-tv-z]{25})(?![0-9A-Za-z])"
_DATE, _TIME = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])", r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_BASIC = r"[0-9]{4}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3])[0-5][0-9][0-6][0-9]"
_ZONE = r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_TIMESTAMP = rf"(?<![0-9])(?:{_DATE}[T ]{_TIME}(?::[0-6][0-9](?:[.,][0-9]+)?)?|{_BASIC}(?:[.,][0-9]+)?){_ZONE}(?![0-9])"
PATTERNS = {"uuid": _UUID, "ulid": _ULID, "timestamp": _TIMESTAMP}
TYPES = (*PATTERNS, "epoch")

# Shorter values are often equal by chance; a uuid, as text or as 16 bytes, is not.
_LONG = 16
# Seconds and milliseconds since 1970, from 2001 to 2099. Two rows may well share one of these in one run and not in
# the next, unlike micro- and nanoseconds.
_EPOCHS = ((10**9, 4_070_908_800), (10**12, 4_070_908_800_000))


@dataclass(frozen=True)
class Mask:
    """One call of `mask()`: columns (all text if none), and a pattern or types in them (whole values if neither)."""

    columns: tuple[str, ...]
    pattern: str | None = None
    types: tuple[str, ...] = ()
    missing_ok: bool = False

    @classmethod
    def of(
        cls,
        columns: Iterable[str],
        *,
        pattern: str | None = None,
        types: str | Iterable[str] = (),
        missing_ok: bool = False,
    ) -> Mask:
        """Make a mask. Raises GoldenError for wrong arguments, and names the right ones."""
        mask = cls(tuple(columns), pattern, (types,) if isinstance(types, str) else tuple(types), missing_ok)
        for column in mask.columns:
            if not isinstance(column, str) or "." not in column.strip("."):
                raise GoldenError(f"mask({column!r}): name a column as 'table.column'; '*' stands for any part of it")
        for kind in mask.types:
            if kind not in TYPES:
                raise GoldenError(f"mask(types={kind!r}): there are {', '.join(TYPES)}")
        if "epoch" in mask.types and not mask.columns:
            raise GoldenError("mask(types='epoch'): any number might be one, so say in which columns")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as exc:
                raise GoldenError(f"mask(pattern={pattern!r}) is not a regular expression: {exc}") from exc
        if not mask.columns and not mask.types and pattern is None:
            raise GoldenError("mask() of nothing: name columns, a pattern or types")
        return mask

    @cached_property
    def searches(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """Patterns to look for inside text, each with the word that replaces a match."""
        named = [(kind, re.compile(PATTERNS[kind])) for kind in self.types if kind in PATTERNS]
        return (*named, *([("text", re.compile(self.pattern))] if self.pattern is not None else ()))

    @property
    def takes_whole_values(self) -> bool:
        return not self.searches and "epoch" not in self.types


@dataclass(frozen=True, slots=True)
class MaskedValue:
    """A volatile value. Equal ones are one value; `scope` separates short ones that are equal by chance."""

    scope: int | None
    content: object
    word: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class MaskedCell:
    """The rest of a masked cell: its type, the text around the masked parts, and a word for each part."""

    type: str
    around: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """A row as it is compared: `shape` has plain contents and masked cells; `values` the values from masked cells.

    `places` are the columns of these values.
    """

    cells: Row
    shape: tuple[object, ...]
    values: tuple[MaskedValue, ...] = ()
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
    """One mask, applied to one column."""

    call: int
    mask: Mask
    clocks: frozenset[str]  # the types whose values here are readings of a clock


class Masking:
    """Masks as they apply to the two images that are compared."""

    def __init__(self, masks: tuple[Mask, ...], images: tuple[DatabaseImage, ...]) -> None:
        self._masks = masks
        self._images = images
        self._found: set[tuple[int, str]] = set()

    def rows(self, table: TableImage) -> Iterator[MaskedRow]:
        """Yield the rows of a table of either image, masked."""
        rules = [self._rules(table.name, column) for column in table.columns]
        if not any(rules):
            for row in table.rows:
                yield MaskedRow(row, tuple(map(exact, row)))
            return
        for row in table.rows:
            shape: list[object] = []
            values: list[MaskedValue] = []
            places: list[int] = []
            for place, (cell, of_column) in enumerate(zip(row, rules, strict=True)):
                shape.append(self._masked(cell, of_column, values) if of_column and cell is not None else exact(cell))
                places += [place] * (len(values) - len(places))
            yield MaskedRow(row, tuple(shape), tuple(values), tuple(places))

    def idle(self) -> list[str]:
        """Describe the masks that found nothing in either image. Call it after all rows have been masked."""
        lost = []
        for call, mask in enumerate(self._masks):
            if mask.missing_ok:
                continue
            lost += [
                f"mask({column!r}): there is no such column on either side{self._near(column)}"
                for column in mask.columns
                if not any(_covers(column, name, each) for name, each in self._columns())
            ]
            lost += [
                f"mask(pattern={mask.pattern!r}): it is in no text on either side"
                if word == "text"
                else f"mask(types={word!r}): there is none on either side"
                for word, _ in mask.searches
                if (call, word) not in self._found
            ]
        return lost

    def _columns(self) -> list[tuple[str, str]]:
        tables = [table for image in self._images for table in image.tables.values()]
        return [(table.name, column) for table in tables for column in table.columns]

    def _near(self, column: str) -> str:
        """List the columns of that table, or the tables, for the message about a mistyped one."""
        table = column.rpartition(".")[0].casefold()
        columns = sorted({each for name, each in self._columns() if name.casefold() == table})
        if columns:
            return f"; {column.rpartition('.')[0]} has {', '.join(columns)}"
        return f"; the tables are {', '.join(sorted({name for name, _ in self._columns()})) or 'none'}"

    def _rules(self, table: str, column: str) -> list[_Rule]:
        here = [
            (call, mask)
            for call, mask in enumerate(self._masks)
            if not mask.columns or any(_covers(name, table, column) for name in mask.columns)
        ]
        takes_whole = any(mask.takes_whole_values for _, mask in here)
        clocks = self._clocks(table, column) if takes_whole else frozenset[str]()
        return [_Rule(call, mask, clocks) for call, mask in here]

    def _clocks(self, table: str, column: str) -> frozenset[str]:
        """Find the types of a column of which all values, on both sides, could be readings of a clock."""
        clocks = {"real", "integer", "text"}
        for image in self._images:
            found = image.tables.get(table)
            if found is not None and column in found.columns:
                place = found.columns.index(column)
                clocks -= {_type(row[place]) for row in found.rows if not _could_be_a_clock(row[place])}
        return frozenset(clocks)

    def _masked(self, cell: Cell, rules: list[_Rule], values: list[MaskedValue]) -> object:
        for rule in rules:
            if rule.mask.columns and rule.mask.takes_whole_values:
                return _whole(cell, rule, values)
            if "epoch" in rule.mask.types and isinstance(cell, int | float):
                return MaskedCell(_type(cell), (), ("time",))
        if isinstance(cell, str):
            return self._inside(cell, rules, values)
        return exact(cell)

    def _inside(self, text: str, rules: list[_Rule], values: list[MaskedValue]) -> object:
        """Mask parts of a text, the rules one after the other, each in the rest."""
        parts: list[str | MaskedValue | None] = [text]  # None: a clock reading, of which nothing is kept
        for rule in rules:
            for word, search in rule.mask.searches:
                if search.search(text) is None:
                    continue
                cut = [piece for part in parts for piece in _cut(part, word, search, rule.call)]
                if len(cut) > len(parts):
                    self._found.add((rule.call, word))
                    parts = cut
        if len(parts) == 1:
            return text
        found = [part for part in parts if not isinstance(part, str)]
        values += [part for part in found if part is not None]
        words = tuple("time" if part is None else part.word for part in found)
        return MaskedCell("text", tuple(part for part in parts if isinstance(part, str)), words)


def _covers(pattern: str, table: str, column: str) -> bool:
    """Whether 'table.column', with '*' for any part of a name, means this column. As in SQL, case does not matter."""
    return fnmatchcase(f"{table}.{column}".casefold(), pattern.casefold())


def _cut(
    part: str | MaskedValue | None, word: str, search: re.Pattern[str], call: int
) -> Iterator[str | MaskedValue | None]:
    """Split text at matches: text, value, text, value, ..., text. Texts between two values may be empty."""
    if not isinstance(part, str):
        yield part
        return
    end = 0
    for match in search.finditer(part):
        if match[0]:
            yield part[end : match.start()]
            yield _value(match[0], word, call)
            end = match.end()
    yield part[end:]


def _value(text: str, word: str, call: int) -> MaskedValue | None:
    if word == "timestamp" or _is_timestamp(text):
        return None
    return MaskedValue(None if len(text) >= _LONG else call, text, word)


def _whole(cell: Cell, rule: _Rule, values: list[MaskedValue]) -> MaskedCell:
    kind = _type(cell)
    if kind in rule.clocks:
        return MaskedCell(kind, (), ("time",))
    is_long = isinstance(cell, str | bytes) and len(cell) >= _LONG
    word = next((name for name in ("uuid", "ulid") if isinstance(cell, str) and _fits(name, cell)), kind)
    values.append(MaskedValue(None if is_long else rule.call, exact(cell), word))
    return MaskedCell(kind, (), (kind,))


def _could_be_a_clock(cell: Cell) -> bool:
    if isinstance(cell, int):
        return any(low <= cell < high for low, high in _EPOCHS)
    return isinstance(cell, float) or (isinstance(cell, str) and _is_timestamp(cell))


def _fits(name: str, text: str) -> bool:
    return re.fullmatch(PATTERNS[name], text) is not None


def _is_timestamp(text: str) -> bool:
    return _fits("timestamp", text)


def _type(cell: Cell) -> str:
    """Return SQLite's name for the type of a cell."""
    if isinstance(cell, int):
        return "integer"
    if isinstance(cell, float):
        return "real"
    return "text" if isinstance(cell, str | BadText) else "blob"
