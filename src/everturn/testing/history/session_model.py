"""Model of a session: its possible states, and the effect of each call on them. linearize.py searches through it.

A state is a path of units, a floor below which they are hidden (trim and clear raise it), and snapshots of earlier
states. Where a call leaves a choice, the model keeps the choice open instead of listing every case:

- A trim keeps a suffix, at least the last unit, and at most `limit` messages. How many is known at the next read, so
  the floor is a range, `lo` to `hi`.
- An undo may bring back anything: UNKNOWN at the start of the path stands for what only the next read can show.
- A unit that no read ever saw is not on the path: `unseen_at` is the place of the latest of them. No read matches a
  state in which an unseen unit is visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, combinations
from typing import NamedTuple, TypeAlias

from everturn.testing.history.parse import NEVER, RecordedCall, Unit


class PathNode:
    """A path of units, as a node in the tree of all paths: equal paths are one object."""

    __slots__ = ("children", "depth", "has_unknown", "keyed", "parent", "shown", "unit")

    def __init__(self, parent: PathNode | None = None, unit: Unit | None = None) -> None:
        self.parent = parent
        self.unit = unit
        self.children: dict[Unit, PathNode] = {}
        self.depth: int = parent.depth + 1 if parent else 0
        self.keyed: frozenset[Unit] = parent.keyed if parent else frozenset()
        self.has_unknown: bool = unit is UNKNOWN or (parent is not None and parent.has_unknown)
        self.shown: tuple[int, tuple[Unit, ...]] | None = None  # a floor, and what is above it, once compared
        if unit is not None and unit.retries:
            self.keyed |= {unit}

    def child(self, unit: Unit) -> PathNode:
        node = self.children.get(unit)
        if node is None:
            node = self.children[unit] = PathNode(self, unit)
        return node

    def above(self, floor: int) -> list[Unit]:
        """List the units of the path from number `floor` on."""
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


class ModelState(NamedTuple):
    """One state: a read sees the path above a floor between `lo` and `hi`, and nothing if `unseen_at` is set.

    `unseen_at` is the place of the latest unit that no read ever saw, `unseen_messages` the number of such messages.
    """

    node: PathNode
    lo: int = 0
    hi: int = 0
    unseen_at: int | None = None
    unseen_messages: int = 0


# The snapshots that are known and still to be used, by name. They are few, so a scan is fast.
Snapshots: TypeAlias = frozenset[tuple[str, ModelState]]


# Appends of unseen units under way, with the lowest place each can be given.
Waiting: TypeAlias = frozenset[tuple[RecordedCall, int]]


class Config(NamedTuple):
    """One configuration: a state, the snapshots, and the calls under way that have already taken effect (`done`).

    `waiting` are the appends of unseen units that have not. An unseen unit only rules out reads, so its append waits
    until everything is removed, or until its call ends.
    """

    state: ModelState
    snapshots: Snapshots = frozenset()
    done: frozenset[RecordedCall] = frozenset()
    waiting: Waiting = frozenset()


UNKNOWN = Unit((), None, 0, NEVER, failed=False)  # type: ignore[arg-type]  # nobody wrote it


class SessionModel:
    """Applies calls to states. `unseen` are the units that were acknowledged and that no read ever saw.

    When `exact`, each configuration knows what its snapshots keep. Otherwise that stays open until one is used, which
    makes fewer configurations and may miss a violation. `doubtful` are units that were neither acknowledged nor read:
    they need not be there, and a trim may have counted them.
    """

    def __init__(
        self,
        unit_of: dict[RecordedCall, Unit],
        unseen: set[Unit],
        snapshots: set[str],
        *,
        doubtful: list[Unit],
        trims: bool,
        exact: bool,
    ) -> None:
        self.root = PathNode()
        self.unit_of = unit_of
        self.unseen = unseen
        self._doubtful = [unit.begin for unit in doubtful]
        self._doubt = list(accumulate((len(unit.values) for unit in doubtful), initial=0))
        self._trims = trims
        self._exact = exact
        self._unseen_units: dict[
            tuple[PathNode, int], Unit
        ] = {}  # which unit it is; not in the state, because no read shows it
        self._kept: dict[str, dict[ModelState, None]] = {name: {} for name in snapshots}

    def start(self) -> Config:
        return Config(ModelState(self.root))

    def unknown(self, pending: Iterable[RecordedCall], done: frozenset[RecordedCall]) -> Config:
        """Make a configuration with an unknown state, in which these of the calls under way have happened."""
        waiting = frozenset((call, 0) for call in pending if self.is_unseen(call) and call not in done)
        return Config(self._unknown_state(), frozenset(), done, waiting)

    def forget_snapshots(self) -> None:
        self._kept.clear()

    def seen(self, units: tuple[Unit, ...], *, below: PathNode | None = None) -> ModelState:
        """Make the state that a read of these units shows. Units hidden `below` them matter to keys only."""
        node = below or self.root
        floor = node.depth
        for unit in units:
            node = node.child(unit)
        return ModelState(node, floor, floor)

    def is_unseen(self, call: RecordedCall) -> bool:
        return call.f == "append" and self.unit_of[call] in self.unseen

    def begin(self, config: Config, call: RecordedCall) -> Config:
        """Begin a call. An unseen unit will stand, if at all, after everything that is there now."""
        if not self.is_unseen(call):
            return config
        place = config.state.node.depth if self._trims else 0  # where it stands matters to trims only
        return config._replace(waiting=config.waiting | {(call, place)})

    def read(self, config: Config, read: RecordedCall, state: ModelState, snapshots: Snapshots) -> Config:
        """Apply a read that decided the state. Waiting units will stand, if at all, after what it saw."""
        waiting = config.waiting
        if waiting and self._trims and read.snapshot is None:
            waiting = frozenset((call, state.node.depth) for call, _ in waiting)
        return Config(state, snapshots, config.done | {read}, waiting)

    def apply(self, config: Config, call: RecordedCall) -> list[Config]:
        """Apply a call. Returns every configuration it can lead to; none if it names a snapshot that is not there."""
        state, snapshots, done, waiting = config
        done |= {call}
        match call.f:
            case "append" if self.unit_of[call] in self.unseen:
                place = next(place for waits, place in waiting if waits is call)
                return [Config(self._append_unseen(state, call, place), snapshots, done, waiting - {(call, place)})]
            case "append":
                return [Config(after, snapshots, done, waiting) for after in self._append(state, self.unit_of[call])]
            case "trim":
                return self._trimmed(config, call)
            case "snapshot":
                return [Config(state, self._keep(snapshots, call.snapshot or "", state), done, waiting)]
        return [
            Config(after, kept, done | {call for call, _ in gone}, _behind(after, waiting - gone))
            for after, kept in self._replaced(state, snapshots, call)
            for gone in self._removed_with(waiting)
        ]

    def _replaced(
        self, state: ModelState, snapshots: Snapshots, call: RecordedCall
    ) -> list[tuple[ModelState, Snapshots]]:
        """Apply a call that replaces the whole session. Returns the possible states, each with the snapshots."""
        match call.f:
            case "clear":
                depth = state.node.depth
                return [(ModelState(state.node, depth, depth), snapshots)]
            case "rollback":
                return self.kept(snapshots, call.snapshot or "")
            case "replace":
                unit, empty = self.unit_of.get(call), ModelState(self.root)
                if unit is not None and unit in self.unseen:
                    return [(self._append_unseen(empty, call, 0), snapshots)]
                return [(after, snapshots) for after in ([empty] if unit is None else self._append(empty, unit))]
            case "erase":
                return [(ModelState(self.root), frozenset())]
            case _:
                return [(self._unknown_state(), snapshots)]

    def _removed_with(self, waiting: Waiting) -> Iterable[Waiting]:
        """List the choices of waiting units that came before: all of them, or any, if a trim may have counted some."""
        if not waiting or not self._trims:
            return [waiting]
        in_order = sorted(waiting, key=lambda waits: waits[0].begin)
        return [frozenset(some) for count in range(len(in_order) + 1) for some in combinations(in_order, count)]

    def _append_unseen(self, state: ModelState, call: RecordedCall, place: int) -> ModelState:
        unit = self.unit_of[call]
        place = max(place, state.unseen_at or 0)
        self._unseen_units[state.node, place] = unit
        return state._replace(
            unseen_at=place, unseen_messages=state.unseen_messages + len(unit.values) if self._trims else 0
        )

    def _append(self, state: ModelState, unit: Unit) -> list[ModelState]:
        node = state.node
        if unit in node.keyed:
            return [state]  # a retry of what is there, hidden or not
        appended = state._replace(node=node.child(unit))
        return [state, appended] if unit.retries and node.has_unknown else [appended]

    def _trimmed(self, config: Config, call: RecordedCall) -> list[Config]:
        """Apply a trim. Waiting units may stand below what it leaves: all whose place is low enough, or none."""
        state, snapshots, done, waiting = config
        done |= {call}
        depth = state.node.depth
        doubt = self._doubt[bisect_right(self._doubtful, call.end)]
        after = [Config(after_trim(state, call, doubt), snapshots, done, waiting)]
        for height in {place for _, place in waiting if place < depth}:
            below = frozenset(pair for pair in waiting if pair[1] <= height)
            unseen_messages = state.unseen_messages + sum(len(call.values) for call, _ in below)
            trimmed = after_trim(
                state._replace(unseen_at=max(height, state.unseen_at or 0), unseen_messages=unseen_messages),
                call,
                doubt,
            )
            if trimmed.unseen_at is None:
                after.append(Config(trimmed, snapshots, done | {call for call, _ in below}, waiting - below))
        return after

    def kept(self, snapshots: Snapshots, name: str) -> list[tuple[ModelState, Snapshots]]:
        """List the states that a snapshot can hold, each with the snapshots that this decides. Empty if it is gone."""
        for known, state in snapshots:
            if known == name:
                return [(state, snapshots)]
        if name not in self._kept:  # taken before the recording began, or after giving up
            return [(self._unknown_state(), snapshots)]
        return [(state, snapshots | {(name, state)}) for state in self._kept[name]]

    def _keep(self, snapshots: Snapshots, name: str, state: ModelState) -> Snapshots:
        if self._exact:
            return frozenset(pair for pair in snapshots if pair[0] != name) | {(name, state)}
        self._kept.setdefault(name, {})[state] = None
        return snapshots

    def _unknown_state(self) -> ModelState:
        return ModelState(self.root.child(UNKNOWN))

    def unseen_in(self, state: ModelState) -> Unit | None:
        """Find the latest unseen unit of a state; None if it has none."""
        node: PathNode | None = state.node
        while node is not None and state.unseen_at is not None:
            if (node, state.unseen_at) in self._unseen_units:
                return self._unseen_units[node, state.unseen_at]
            node = node.parent
        return None

    def match(self, state: ModelState, units: tuple[Unit, ...]) -> ModelState | None:
        """Match a read of these units. Returns the state with its floor decided, or None if the read cannot be."""
        node, lo, hi, unseen_at, _ = state
        if unseen_at is not None:
            return None
        floor = node.depth - len(units)
        if lo == 0 and node.has_unknown:
            brought_back = len(units) - (node.depth - 1)
            if brought_back >= 0 and node.above(1) == list(units[brought_back:]):
                return self.seen(units, below=self.root.child(UNKNOWN))
        if not lo <= floor <= hi or not node.shows(floor, units):
            return None
        return state if lo == hi else ModelState(node, floor, floor)


def _behind(state: ModelState, waiting: Waiting) -> Waiting:
    """Place waiting units, if they are there at all, after everything in a state."""
    return frozenset((call, state.node.depth) for call, _ in waiting)


def after_trim(state: ModelState, call: RecordedCall, doubt: int) -> ModelState:
    """Apply a trim: hide all but a suffix. The last unit stays; a session within the limit is not changed.

    A trim may read first and hide a moment later. So appends that overlap it stay, and the limit holds for messages
    acknowledged before it began. `doubt` is the number of messages that may be there and that nobody saw.
    """
    node, lo, hi, unseen_at, unseen_messages = state
    depth, limit = node.depth, call.invoke.limit
    if limit is not None and limit <= 0:
        return ModelState(node, lo, depth)
    if limit is not None and _fits(node, lo, limit - unseen_messages - doubt):
        return state
    if unseen_at is not None:
        if unseen_at == depth:  # the unseen unit is the last one, and stays
            return ModelState(node, lo, depth, unseen_at, unseen_messages)
        lo = max(lo, unseen_at)  # where it is not hidden, no read could follow
    elif lo == depth:
        return state
    if limit is not None:
        lo = max(lo, _least_floor(node, lo, limit, call.begin))
    return ModelState(node, lo, max(hi, depth - 1, lo))


def _fits(node: PathNode, lo: int, limit: int) -> bool:
    """Whether at most `limit` messages are above a floor."""
    messages = 0
    while messages <= limit and node.depth > lo and node.parent is not None and node.unit is not None:
        messages += len(node.unit.values) if node.unit is not UNKNOWN else limit + 1
        node = node.parent
    return messages <= limit


def _least_floor(node: PathNode, lo: int, limit: int, before: int) -> int:
    """Find the lowest floor that leaves at most `limit` messages acknowledged before a moment; it may cut a unit."""
    messages = 0
    while messages < limit and node.depth > lo and node.parent is not None and node.unit is not None:
        messages += len(node.unit.values) if node.unit.end < before else 0
        node = node.parent
    return node.depth
