"""What a change log tells: which turn follows which, and where the head stood after every change.

Pure. It reads what `store.changes` returns; how it is drawn is the business of the command and the inspector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from everturn.model import Change

TURNS = ("append", "replace", "fork")  # the changes that write entries
UNDO_STEPS = 10  # as many as the store keeps


class Moment(msgspec.Struct, frozen=True):
    """One change, and where it left the session. Turns are named by the version of the change that wrote them.

    `head` is the turn the history ends with (0: before the first; None: older than what is remembered). `parent` is,
    for a turn, the one it follows.
    """

    change: Change
    head: int | None
    parent: int | None = None

    @property
    def version(self) -> int:
        return self.change.version

    @property
    def is_turn(self) -> bool:
        return self.change.kind in TURNS


def moments(
    changes: Sequence[Change],
    snapshots: Mapping[str, int],
    replaced_after: Callable[[Change], int | None] = lambda _change: None,
) -> list[Moment]:
    """The changes, oldest first, each with where it left the head.

    `changes` come as the store gives them, newest first, and may begin after the session did. `snapshots` tells the
    version each snapshot was taken at. `replaced_after` tells after which seq a replace put its entries (0: at the
    start), or None if it cannot be known any more.
    """
    told: list[Moment] = []
    head: int | None = 0 if changes and changes[-1].version == 1 else None
    heads: dict[int, int | None] = {0: 0}
    turn_of: dict[int, int] = {}  # the turn that wrote a seq
    steps: list[tuple[str, int | None]] = []  # what undo would take back: the kind, and the head before it
    for change in reversed(changes):
        parent = None
        before = head
        match change.kind:
            case "append" | "fork":
                parent, head = head, change.version
            case "replace":
                after = replaced_after(change)
                parent = 0 if after == 0 else turn_of.get(after) if after is not None else None
                head = change.version
            case "rollback":
                head = heads.get(snapshots.get(change.snapshot or "", -1))
            case "undo":
                kind, earlier = steps.pop() if steps else ("", None)
                head = earlier if kind in {"rollback", "replace", ""} else head
        if change.kind in {"rollback", "replace", "trim", "clear"}:
            steps = [*steps, (change.kind, before)][-UNDO_STEPS:]
        turn_of.update(dict.fromkeys(change.seqs, change.version))
        heads[change.version] = head
        told.append(Moment(change, head, parent))
    return told


def on_path(told: Sequence[Moment]) -> frozenset[int]:
    """The turns that lead to where the head stands now."""
    parents = {moment.version: moment.parent for moment in told if moment.is_turn}
    path: set[int] = set()
    turn = told[-1].head if told else None
    while turn is not None and turn in parents and turn not in path:
        path.add(turn)
        turn = parents[turn]
    return frozenset(path)


def tips(told: Iterable[Moment]) -> list[int]:
    """The turns that no other follows: the end of each branch."""
    turns = [moment for moment in told if moment.is_turn]
    followed = {moment.parent for moment in turns}
    return [moment.version for moment in turns if moment.version not in followed]


def lanes(told: Sequence[Moment]) -> dict[int, int]:
    """Which lane each turn is drawn in: 0 for the path to the head, and for every other branch the first that is free
    from its tip down to where it left another."""
    order = {moment.version: place for place, moment in enumerate(told)}
    parents = {moment.version: moment.parent for moment in told if moment.is_turn}
    assigned = dict.fromkeys(on_path(told), 0)
    taken: list[list[tuple[int, int]]] = [[(0, len(told))]]  # of each lane, the places in use
    for tip in sorted(tips(told), reverse=True):
        branch: list[int] = []
        turn: int | None = tip
        while turn in parents and turn not in assigned:
            branch.append(turn)
            turn = parents[turn]
        if not branch:
            continue
        left_at = turn if turn in order else branch[-1]
        span = order[left_at], order[tip]
        free = (lane for lane, used in enumerate(taken) if not any(_overlap(span, one) for one in used))
        lane = next(free, len(taken))
        taken += [[]] * (lane == len(taken))
        taken[lane] = [*taken[lane], span]
        assigned.update(dict.fromkeys(branch, lane))
    return assigned


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


# --- a graph in text -------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True):
    """A line of the graph: the lanes as they are drawn, and the moment it is of (None: only lines that join)."""

    drawn: str
    moment: Moment | None = None


def graph(told: Sequence[Moment]) -> list[Row]:
    """The moments newest first, with a lane for each branch, as `git log --graph` draws commits."""
    rows: list[Row] = []
    lanes: list[int | None] = []  # the turn each lane leads down to
    for moment in reversed(told):
        here = moment.version if moment.is_turn else moment.head
        if here is not None and here in lanes:
            lane = lanes.index(here)
        else:
            lanes.append(here)
            lane = len(lanes) - 1
        if moment.is_turn:
            rows += _joined(lanes, lane, here)
        marks = ["|"] * len(lanes)
        marks[lane] = "*" if moment.is_turn else "o"
        rows.append(Row(" ".join(marks), moment))
        if moment.is_turn:
            lanes[lane] = moment.parent
            if moment.parent in {0, None}:
                del lanes[lane]
    return rows


def _joined(lanes: list[int | None], lane: int, turn: int | None) -> list[Row]:
    """Let every other lane that leads to this turn run into its lane; the lanes right of it move up."""
    rows: list[Row] = []
    for other in reversed(range(lane + 1, len(lanes))):
        if lanes[other] != turn:
            continue
        drawn = list("| " * len(lanes))
        for crossed in range(lane + 1, other):
            drawn[2 * crossed - 1] = "_"
        for moved in range(other, len(lanes)):
            drawn[2 * moved - 1], drawn[2 * moved] = "/", " "
        rows.append(Row("".join(drawn).rstrip()))
        del lanes[other]
    return rows
