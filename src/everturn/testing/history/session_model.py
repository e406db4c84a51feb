"""Owns what a session can be, and what each call makes of it: the model that the search walks through.

A state is a path of units, a floor below which they are hidden (trim and clear raise it), and snapshots of earlier
states. Where a call leaves a choice, the model keeps the choice open instead of listing it:

- A trim keeps a suffix, at least the last unit, and at most `limit` messages: how many is known at the next read. So
  the floor is a range, `lo` to `hi`.
- An undo may bring back anything: WILD stands at the start of the path for what only the next read can tell.
- A unit that no read ever saw is not on the path: `dirt` says where the latest of them stands. No read matches a
  state with visible dirt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, combinations
from typing import NamedTuple, TypeAlias

from everturn.testing.history.parse import NEVER, Call, Unit


class Node:
    """A path of units, as a leaf of the tree of all paths: equal paths are one object."""

    __slots__ = ("children", "depth", "keyed", "parent", "shown", "unit", "wild")

    def __init__(self, parent: Node | None = None, unit: Unit | None = None) -> None:
        self.parent = parent
        self.unit = unit
        self.children: dict[Unit, Node] = {}
        self.depth: int = parent.depth + 1 if parent else 0
        self.keyed: frozenset[Unit] = parent.keyed if parent else frozenset()
        self.wild: bool = unit is WILD or (parent is not None and parent.wild)
        self.shown: tuple[int, tuple[Unit, ...]] | None = None  # a floor, and what is above it, once compared
        if unit is not None and unit.retries:
            self.keyed |= {unit}

    def child(self, unit: Unit) -> Node:
        node = self.children.get(unit)
        if node is None:
            node = self.children[unit] = Node(self, unit)
        return node

    def above(self, floor: int) -> list[Unit]:
        """The units of the path from number `floor` on."""
        units: list[Unit] = []
        node = self
        while node.depth > floor and node.parent is not None and node.unit is not None:
            units.append(node.unit)
            node = node.parent
        units.reverse()
        return units

    def shows(self, floor: int, units: tuple[Unit, ...]) -> bool:
        """Whether the path above `floor` is exactly these units, as many as there are."""
        node, place = self, len(units)
        while place:
            if node.shown is not None and node.shown[0] == floor:
                if node.shown[1] != units[:place]:
                    return False
                break
            place -= 1
            if node.unit is not units[place] or node.parent is None:
                return False
            node = node.parent
        self.shown = (floor, units)
        return True


class State(NamedTuple):
    """What a read would see: the path above a floor between `lo` and `hi`, if there is no `dirt`.

    `dirt` is the place of the latest unit among those that no read ever saw, `heap` how many messages they are.
    """

    node: Node
    lo: int = 0
    hi: int = 0
    dirt: int | None = None
    heap: int = 0


# The snapshots that are known and still to be used, by name. Few, so looking through them is quick.
Snapshots: TypeAlias = frozenset[tuple[str, State]]


# Appends of unseen units under way, with the lowest place each can be given.
Waiting: TypeAlias = frozenset[tuple[Call, int]]


class Config(NamedTuple):
    """One possible present: a state, the snapshots, and which of the calls under way have already taken effect.

    `waiting` are the appends of unseen units that have not. Units that no read ever saw only spoil reads: it is best
    to let them wait until all is wiped, or until their call ends.
    """

    state: State
    snapshots: Snapshots = frozenset()
    done: frozenset[Call] = frozenset()
    waiting: Waiting = frozenset()


WILD = Unit((), None, 0, NEVER, failed=False)  # type: ignore[arg-type]  # nobody wrote it


class Model:
    """What calls make of a state. `unseen` are the units that were acknowledged and that no read ever saw.

    When `exact`, each present knows what its snapshots keep. Otherwise it is left open until one is used, which
    makes fewer presents and lets a little more pass. `doubtful` are units that neither a read nor their caller saw:
    they need not be there, and may be what a trim counted.
    """

    def __init__(
        self,
        unit_of: dict[Call, Unit],
        unseen: set[Unit],
        snapshots: set[str],
        *,
        doubtful: list[Unit],
        trims: bool,
        exact: bool,
    ) -> None:
        self.root = Node()
        self.unit_of = unit_of
        self.unseen = unseen
        self._doubtful = [unit.begin for unit in doubtful]
        self._doubt = list(accumulate((len(unit.values) for unit in doubtful), initial=0))
        self._trims = trims
        self._exact = exact
        self._dirt: dict[tuple[Node, int], Unit] = {}  # who it is; not part of a state, for reads cannot tell
        self._kept: dict[str, dict[State, None]] = {name: {} for name in snapshots}

    def start(self) -> Config:
        return Config(State(self.root))

    def unknown(self, pending: Iterable[Call], done: frozenset[Call]) -> Config:
        """A present of which nothing is known but that, of the calls under way, these have happened."""
        waiting = frozenset((call, 0) for call in pending if self.is_unseen(call) and call not in done)
        return Config(self._wild(), frozenset(), done, waiting)

    def forget_snapshots(self) -> None:
        self._kept.clear()

    def seen(self, units: tuple[Unit, ...], *, below: Node | None = None) -> State:
        """The state that a read of these units shows. What is hidden `below` them matters to keys only."""
        node = below or self.root
        floor = node.depth
        for unit in units:
            node = node.child(unit)
        return State(node, floor, floor)

    def is_unseen(self, call: Call) -> bool:
        return call.f == "append" and self.unit_of[call] in self.unseen

    def begin(self, config: Config, call: Call) -> Config:
        """The present when a call begins: an unseen unit stands, if it does, after all that is there now."""
        if not self.is_unseen(call):
            return config
        place = config.state.node.depth if self._trims else 0  # where it stands matters to trims only
        return config._replace(waiting=config.waiting | {(call, place)})

    def read(self, config: Config, read: Call, state: State, snapshots: Snapshots) -> Config:
        """The present after a read that decided its state. What it did not see stands, if it does, after it."""
        waiting = config.waiting
        if waiting and self._trims and read.snapshot is None:
            waiting = frozenset((call, state.node.depth) for call, _ in waiting)
        return Config(state, snapshots, config.done | {read}, waiting)

    def apply(self, config: Config, call: Call) -> list[Config]:
        """The presents a call can lead to. None of them if it is about a snapshot that is not there."""
        state, snapshots, done, waiting = config
        done |= {call}
        match call.f:
            case "append" if self.unit_of[call] in self.unseen:
                place = next(place for waits, place in waiting if waits is call)
                return [Config(self._spoil(state, call, place), snapshots, done, waiting - {(call, place)})]
            case "append":
                return [Config(after, snapshots, done, waiting) for after in self._append(state, self.unit_of[call])]
            case "trim":
                return self._trimmed(config, call)
            case "snapshot":
                return [Config(state, self._keep(snapshots, call.snapshot or "", state), done, waiting)]
        return [
            Config(after, kept, done | {call for call, _ in gone}, _behind(after, waiting - gone))
            for after, kept in self._wiped(state, snapshots, call)
            for gone in self._wiped_with(waiting)
        ]

    def _wiped(self, state: State, snapshots: Snapshots, call: Call) -> list[tuple[State, Snapshots]]:
        """What a call leaves that wipes everything: the states, each with the snapshots."""
        match call.f:
            case "clear":
                depth = state.node.depth
                return [(State(state.node, depth, depth), snapshots)]
            case "rollback":
                return self.kept(snapshots, call.snapshot or "")
            case "replace":
                unit, empty = self.unit_of.get(call), State(self.root)
                if unit is not None and unit in self.unseen:
                    return [(self._spoil(empty, call, 0), snapshots)]
                return [(after, snapshots) for after in ([empty] if unit is None else self._append(empty, unit))]
            case "erase":
                return [(State(self.root), frozenset())]
            case _:
                return [(self._wild(), snapshots)]

    def _wiped_with(self, waiting: Waiting) -> Iterable[Waiting]:
        """Which of the units that wait came before all is wiped: best all of them, but for a trim that counted some."""
        if not waiting or not self._trims:
            return [waiting]
        in_order = sorted(waiting, key=lambda waits: waits[0].begin)
        return [frozenset(some) for count in range(len(in_order) + 1) for some in combinations(in_order, count)]

    def _spoil(self, state: State, call: Call, place: int) -> State:
        unit = self.unit_of[call]
        place = max(place, state.dirt or 0)
        self._dirt[state.node, place] = unit
        return state._replace(dirt=place, heap=state.heap + len(unit.values) if self._trims else 0)

    def _append(self, state: State, unit: Unit) -> list[State]:
        node = state.node
        if unit in node.keyed:
            return [state]  # a retry of what is there, hidden or not
        appended = state._replace(node=node.child(unit))
        return [state, appended] if unit.retries and node.wild else [appended]

    def _trimmed(self, config: Config, call: Call) -> list[Config]:
        """Units that wait may stand below what the trim leaves: all those whose place is low enough, or none."""
        state, snapshots, done, waiting = config
        done |= {call}
        depth = state.node.depth
        doubt = self._doubt[bisect_right(self._doubtful, call.end)]
        after = [Config(after_trim(state, call, doubt), snapshots, done, waiting)]
        for height in {place for _, place in waiting if place < depth}:
            below = frozenset(pair for pair in waiting if pair[1] <= height)
            heap = state.heap + sum(len(call.values) for call, _ in below)
            trimmed = after_trim(state._replace(dirt=max(height, state.dirt or 0), heap=heap), call, doubt)
            if trimmed.dirt is None:
                after.append(Config(trimmed, snapshots, done | {call for call, _ in below}, waiting - below))
        return after

    def kept(self, snapshots: Snapshots, name: str) -> list[tuple[State, Snapshots]]:
        """What a snapshot can keep, each with the snapshots that this decides. Empty if it is not there."""
        for known, state in snapshots:
            if known == name:
                return [(state, snapshots)]
        if name not in self._kept:  # taken before the recording began, or when track was lost
            return [(self._wild(), snapshots)]
        return [(state, snapshots | {(name, state)}) for state in self._kept[name]]

    def _keep(self, snapshots: Snapshots, name: str, state: State) -> Snapshots:
        if self._exact:
            return frozenset(pair for pair in snapshots if pair[0] != name) | {(name, state)}
        self._kept.setdefault(name, {})[state] = None
        return snapshots

    def _wild(self) -> State:
        return State(self.root.child(WILD))

    def unseen_in(self, state: State) -> Unit | None:
        """The latest unseen unit of a state, if it has one."""
        node: Node | None = state.node
        while node is not None and state.dirt is not None:
            if (node, state.dirt) in self._dirt:
                return self._dirt[node, state.dirt]
            node = node.parent
        return None

    def match(self, state: State, units: tuple[Unit, ...]) -> State | None:
        """The state, with what was open in it decided, if a read can see these units in it; otherwise None."""
        node, lo, hi, dirt, _ = state
        if dirt is not None:
            return None
        floor = node.depth - len(units)
        if lo == 0 and node.wild:
            brought_back = len(units) - (node.depth - 1)
            if brought_back >= 0 and node.above(1) == list(units[brought_back:]):
                return self.seen(units, below=self.root.child(WILD))
        if not lo <= floor <= hi or not node.shows(floor, units):
            return None
        return state if lo == hi else State(node, floor, floor)


def _behind(state: State, waiting: Waiting) -> Waiting:
    """What still waits stands, if it does, after all that a state has."""
    return frozenset((call, state.node.depth) for call, _ in waiting)


def after_trim(state: State, call: Call, doubt: int) -> State:
    """Hide all but a suffix. The last unit stays; what fits into the limit already is left alone.

    A trim may be planned on what it read and hide that a moment later: appends that overlap it stay, and the limit
    holds for what was acknowledged before it began. `doubt` is how many messages may be there that nobody saw.
    """
    node, lo, hi, dirt, heap = state
    depth, limit = node.depth, call.invoke.limit
    if limit is not None and limit <= 0:
        return State(node, lo, depth)
    if limit is not None and _fits(node, lo, limit - heap - doubt):
        return state
    if dirt is not None:
        if dirt == depth:  # the unseen unit is the last one, and stays
            return State(node, lo, depth, dirt, heap)
        lo = max(lo, dirt)  # a state in which it is not hidden leads nowhere that this one does not
    elif lo == depth:
        return state
    if limit is not None:
        lo = max(lo, _least_floor(node, lo, limit, call.begin))
    return State(node, lo, max(hi, depth - 1, lo))


def _fits(node: Node, lo: int, limit: int) -> bool:
    """Whether there are at most `limit` messages above a floor."""
    messages = 0
    while messages <= limit and node.depth > lo and node.parent is not None and node.unit is not None:
        messages += len(node.unit.values) if node.unit is not WILD else limit + 1
        node = node.parent
    return messages <= limit


def _least_floor(node: Node, lo: int, limit: int, before: int) -> int:
    """The lowest floor that leaves at most `limit` messages acknowledged before a moment, if a unit may be cut."""
    messages = 0
    while messages < limit and node.depth > lo and node.parent is not None and node.unit is not None:
        messages += len(node.unit.values) if node.unit.end < before else 0
        node = node.parent
    return node.depth
