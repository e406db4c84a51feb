"""Pairs the rows of two databases whose masked values differ.

Pure. Two databases are equal if a one-to-one mapping of the masked values of one to those of the other makes their rows
equal. A mapping that was found proves it, so databases that differ are never called equal.

Rows whose unmasked content is unique are pairs, and their values are mapped; this makes other rows unique. Where that
ends, rows are told apart by the rows that refer to their values, and so on (colours, as in graph isomorphism). Rows
that are equal even so are paired as they come. The rest differs, and is paired so that a reader sees few differences:
first by values that both sides have, then by primary key, then by similarity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from everturn.testing.golden.masks import MaskedRow, MaskedValue

# Rounds of colouring: how many references away a difference may be. Few, if the databases differ anyway.
_MOST_ROUNDS = 64
_FEW_ROUNDS = 2
_MOST_LIKENESSES = 20_000


@dataclass(slots=True)
class TableMatch:
    """The rows of one table, compared: the number of equal ones, the changed, missing and added ones."""

    same: int = 0
    changed: list[tuple[MaskedRow, MaskedRow]] = field(default_factory=list)
    missing: list[MaskedRow] = field(default_factory=list)
    added: list[MaskedRow] = field(default_factory=list)


# Shapes and values are compared very often, so each is a number: equal numbers are equal shapes or values.
_Group = tuple[int, tuple[int, ...], int]


@dataclass(eq=False, slots=True)
class _RowNode:
    """A row of one side, and its partner on the other once it is found."""

    side: int
    table: str
    row: MaskedRow
    key: tuple[int, ...]
    shape: int
    values: tuple[int, ...]
    colour: int = 0
    group: _Group | None = None
    partner: _RowNode | None = None
    is_changed: bool = False


class RowMatching:
    """Pairs of rows of two sides, 0 expected and 1 actual, and the mapping of values that results."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, tuple[object, ...]], int] = {}
        self._values: dict[MaskedValue, int] = {}
        self._open: list[_RowNode] = []
        self._done: list[_RowNode] = []
        self._count = 0
        self._names: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._holders: tuple[_Holders, _Holders] = (defaultdict(list), defaultdict(list))
        self._groups: dict[_Group, tuple[dict[_RowNode, None], dict[_RowNode, None]]] = {}
        self._ready: dict[_Group, None] = {}  # groups that have changed: there may be a pair without a choice in them

    def add(self, side: int, table: str, rows: Iterable[MaskedRow], *, key: tuple[int, ...]) -> None:
        """Add the rows of a table of one side. Add all tables of both sides before `run`."""
        shapes, values = self._shapes, self._values
        for row in rows:
            shape = shapes.setdefault((table, row.shape), len(shapes))
            held = tuple([values.setdefault(value, len(values)) for value in row.values])
            node = _RowNode(side, table, row, key, shape, held)
            self._open.append(node)
            for value in dict.fromkeys(held):
                self._holders[side][value].append(node)

    def run(self) -> dict[str, TableMatch]:
        """Pair the rows. Returns the result for each table that has rows."""
        self._place_all()
        if self._is_open():
            self._colour()
            self._guess(lambda mine, theirs: len(mine) == len(theirs))
        if self._is_open():
            for node in self._open:
                node.colour = 0
            self._name_what_both_have()
            self._place_all()
            self._pair_by_key()
            self._guess(lambda mine, theirs: bool(mine and theirs))
            self._pair_by_key()
            self._pair_by_likeness()
            self._is_open()
        return _by_table([*self._done, *self._open])

    def name(self, side: int, value: MaskedValue) -> int | None:
        """Return the number of a value, equal to that of its counterpart on the other side; None if it has none."""
        return self._names[side].get(self._values[value])

    def is_same_cell(self, expected: MaskedRow, actual: MaskedRow, place: int) -> bool:
        """Whether two rows are equal in one column, masked values by name."""
        left, right = (
            [
                self._names[side].get(self._values[value], -side)
                for value, where in zip(row.values, row.places, strict=True)
                if where == place
            ]
            for side, row in enumerate((expected, actual))
        )
        return expected.shape[place] == actual.shape[place] and left == right

    def _is_open(self) -> bool:
        self._done += [node for node in self._open if node.partner is not None]
        self._open = [node for node in self._open if node.partner is None]
        return bool(self._open)

    # --- rows that look alike ----------------------------------------------------------------------------------------

    def _group_of(self, node: _RowNode) -> _Group:
        """Make the group of a row: its shape, the names of its values, and which values without a name are equal."""
        if not node.values:
            return node.shape, (), node.colour
        names, nameless = self._names[node.side], dict[int, int]()
        known = [names.get(value) or ~nameless.setdefault(value, len(nameless)) for value in node.values]
        return node.shape, tuple(known), node.colour

    def _place_all(self) -> None:
        for node in self._open:
            self._place(node)
        self._settle()

    def _place(self, node: _RowNode) -> None:
        look = self._group_of(node)
        if look == node.group:
            return
        if node.group is not None:
            self._leave(node)
        node.group = look
        group = self._groups.get(look)
        if group is None:
            group = self._groups[look] = ({}, {})
        group[node.side][node] = None
        self._ready[look] = None

    def _leave(self, node: _RowNode) -> None:
        look = node.group
        if look is None:
            return
        group = self._groups[look]
        del group[node.side][node]
        node.group = None
        if group[0] or group[1]:
            self._ready[look] = None
        else:
            del self._groups[look]

    def _settle(self) -> None:
        """Pair rows wherever there is no choice, or no choice that matters, until no such group is left."""
        while self._ready:
            group = self._groups.get(self._ready.popitem()[0])
            if group is None or not group[0] or not group[1]:
                continue
            mine, theirs = group
            if len(mine) == len(theirs) == 1 or all(map(self._is_alone, chain(mine, theirs))):
                for one in list(mine):
                    other = self._twin(one)
                    if other is not None:
                        self._pair(one, other)
                for one, other in list(zip(mine, theirs, strict=False)):
                    self._pair(one, other)

    def _is_alone(self, node: _RowNode) -> bool:
        """Whether no other row holds a nameless value of this one: then any row of its group may be the partner."""
        names, holders = self._names[node.side], self._holders[node.side]
        return all(value in names or len(holders[value]) == 1 for value in node.values)

    def _twin(self, one: _RowNode) -> _RowNode | None:
        """Find a row of the other side in the same group with the very same values, which have no names yet."""
        for value in one.values:
            if value not in self._names[0]:
                for other in self._holders[1].get(value, ()):
                    if other.group == one.group and other.values == one.values:
                        return other
        return None

    def _pair(self, one: _RowNode, other: _RowNode) -> None:
        self._take(one, other)
        for mine, theirs in zip(one.values, other.values, strict=True):
            if mine not in self._names[0]:
                self._name(mine, theirs)

    def _take(self, one: _RowNode, other: _RowNode) -> None:
        for node, partner in ((one, other), (other, one)):
            self._leave(node)
            node.partner = partner

    def _name(self, mine: int, theirs: int) -> None:
        self._count += 1
        self._names[0][mine] = self._names[1][theirs] = self._count
        for node in (*self._holders[0][mine], *self._holders[1][theirs]):
            if node.partner is None:
                self._place(node)

    # --- rows that stay alike ----------------------------------------------------------------------------------------

    def _nameless(self, side: int) -> list[int]:
        values = dict.fromkeys(value for node in self._open if node.side == side for value in node.values)
        return [value for value in values if value not in self._names[side]]

    def _colour(self) -> None:
        """Tell rows apart by the rows that hold their nameless values, in the same way on both sides."""
        palette: dict[object, int] = {}

        def mix(what: object) -> int:
            return palette.setdefault(what, len(palette) + 1)

        rows = {node: mix(node.group) for node in self._open if node.values}
        values = [dict.fromkeys(self._nameless(side), 0) for side in (0, 1)]
        shades = 0
        for _ in range(_MOST_ROUNDS if _are_alike(rows) else _FEW_ROUNDS):
            held: list[dict[int, list[tuple[int, int]]]] = [defaultdict(list), defaultdict(list)]
            for node, colour in rows.items():
                for position, value in enumerate(node.values):
                    held[node.side][value].append((colour, position))
            values = [
                {value: mix((colour, tuple(sorted(held[side][value])))) for value, colour in values[side].items()}
                for side in (0, 1)
            ]
            finer = {
                node: mix((colour, *[values[node.side].get(value, 0) for value in node.values]))
                for node, colour in rows.items()
            }
            if _are_alike(rows) and not _are_alike(finer):
                break  # the sides differ here; more rounds would spread that to rows that are equal
            rows = finer
            before, shades = shades, len(set(rows.values()))
            if before == shades:
                break
        for node, colour in rows.items():
            node.colour = colour
        self._place_all()

    def _guess(self, may: Callable[[dict[_RowNode, None], dict[_RowNode, None]], bool]) -> None:
        """In every group that `may` allows, pair rows as they come and apply what follows, until nothing changes."""
        before = -1
        while before != self._count:
            before = self._count
            for look in list(self._groups):
                mine, theirs = self._groups.get(look, ({}, {}))
                while mine and may(mine, theirs):
                    one = next(iter(mine))
                    self._pair(one, self._twin(one) or next(iter(theirs)))
                    self._settle()

    # --- rows that differ --------------------------------------------------------------------------------------------

    def _name_what_both_have(self) -> None:
        """Name long values that both sides have, such as ids from the start. Short values may be equal by chance."""
        long = {number for value, number in self._values.items() if value.scope is None}
        for value in long.intersection(self._nameless(0), self._nameless(1)):
            self._name(value, value)

    def _pair_by_key(self) -> None:
        """Pair rows of the same primary key, as changed ones."""
        self._is_open()
        found: dict[object, tuple[list[_RowNode], list[_RowNode]]] = defaultdict(lambda: ([], []))
        for node in self._open:
            key = self._key(node)
            if key is not None:
                found[key][node.side].append(node)
        for mine, theirs in found.values():
            if len(mine) == len(theirs) == 1 and mine[0].partner is None and theirs[0].partner is None:
                self._change(mine[0], theirs[0])

    def _pair_by_likeness(self) -> None:
        """Pair rows that are equal in at least half of their columns, as changed ones, unless a key says otherwise."""
        self._is_open()
        found: dict[str, tuple[list[_RowNode], list[_RowNode]]] = defaultdict(lambda: ([], []))
        for node in self._open:
            if not node.key or any(_values_at(node, place) for place in node.key):
                found[node.table][node.side].append(node)
        for mine, theirs in found.values():
            if len(mine) * len(theirs) > _MOST_LIKENESSES:
                continue
            for one in mine:
                free = (other for other in theirs if other.partner is None)
                likest = max(free, key=partial(self._likeness, one), default=None)
                if likest is not None and self._likeness(one, likest) * 2 >= len(one.row.shape):
                    self._change(one, likest)

    def _likeness(self, one: _RowNode, other: _RowNode) -> int:
        return sum(self.is_same_cell(one.row, other.row, place) for place in range(len(one.row.shape)))

    def _key(self, node: _RowNode) -> object:
        """Return the primary key, with values by name. None if there is none, or a value in it has no name."""
        names = [self._names[node.side].get(value) for place in node.key for value in _values_at(node, place)]
        if not node.key or None in names:
            return None
        return node.table, tuple(node.row.shape[place] for place in node.key), tuple(names)

    def _change(self, one: _RowNode, other: _RowNode) -> None:
        self._take(one, other)
        one.is_changed = other.is_changed = True
        for place, (left, right) in enumerate(zip(one.row.shape, other.row.shape, strict=True)):
            if left == right:
                for mine, theirs in zip(_values_at(one, place), _values_at(other, place), strict=True):
                    if mine not in self._names[0] and theirs not in self._names[1]:
                        self._name(mine, theirs)
        self._settle()


_Holders = defaultdict[int, list[_RowNode]]


def _values_at(node: _RowNode, place: int) -> list[int]:
    return [value for value, where in zip(node.values, node.row.places, strict=True) if where == place]


def _are_alike(colours: dict[_RowNode, int]) -> bool:
    """Whether both sides have the same colours, each as often."""
    sides = [Counter(colour for node, colour in colours.items() if node.side == side) for side in (0, 1)]
    return sides[0] == sides[1]


def _by_table(nodes: Iterable[_RowNode]) -> dict[str, TableMatch]:
    found: dict[str, TableMatch] = {}
    for node in nodes:
        match = found.get(node.table)
        if match is None:
            match = found[node.table] = TableMatch()
        if node.partner is None:
            (match.added if node.side else match.missing).append(node.row)
        elif node.side == 0:
            if node.is_changed:
                match.changed.append((node.row, node.partner.row))
            else:
                match.same += 1
    return found
