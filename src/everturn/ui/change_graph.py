"""The graph of a session's changes: which turn follows which, and where the head stood after every change.

Pure. The input is the result of `store.changes`; the command draws the graph in text, the inspector as SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from everturn.model import Change, Snapshot

TURNS = ("append", "replace", "fold", "fork")  # the changes that write entries
UNDO_STEPS = 10  # as many as the store keeps


class Moment(msgspec.Struct, frozen=True):
    """One change, and the head after it. A turn is named by the version of the change that wrote it.

    `head` is the turn that the history ends with (0: no turn yet; None: older than the first change that is known).
    `parent` is, for a turn, the turn that it follows.
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


def place_changes(
    changes: Sequence[Change],
    snapshots: Mapping[str, int],
    replaced_after: Callable[[Change, int | None], int | None] = lambda _change, _latest: None,
) -> list[Moment]:
    """The changes, oldest first, each with the head after it.

    `changes` come as the store returns them, newest first; the oldest may be missing. `snapshots` has the version at
    which each snapshot was taken. `replaced_after` returns the seq after which a replace put its entries (0: at the
    start), or None if it is not known any more. It is told the latest seq that was written before, if that is known:
    behind it may stand summaries that the replace carried along, which no change names.
    """
    moments: list[Moment] = []
    head: int | None = 0 if changes and changes[-1].version == 1 else None
    heads: dict[int, int | None] = {0: 0}
    turn_of: dict[int, int] = {}  # the turn that wrote a seq
    latest = head
    steps: list[tuple[str, int | None, int]] = []  # that undo takes back: the kind, the head before it, its version
    for change in reversed(changes):
        parent = None
        before = head
        match change.kind:
            case "append" | "fold" | "fork":
                parent, head = head, change.version
            case "replace":
                after = replaced_after(change, latest)
                parent = 0 if after == 0 else turn_of.get(after) if after is not None else None
                head = change.version
            case "rollback":
                head = heads.get(_target(change, snapshots))
            case "undo":
                kind, earlier, version = steps.pop() if steps else ("", None, 0)
                is_back = kind in {"rollback", "replace", ""} or (kind == "fold" and head == version)
                head = earlier if is_back else head
        if change.kind in {"rollback", "replace", "trim", "fold", "clear"}:
            steps = [*steps, (change.kind, before, change.version)][-UNDO_STEPS:]
        turn_of.update(dict.fromkeys(change.seqs, change.version))
        if change.kind == "replace" and change.seqs and latest is not None:
            turn_of.update(dict.fromkeys(range(latest + 1, change.seqs[0]), change.version))
        latest = change.seqs[-1] if change.seqs else None if change.kind == "fork" else latest
        heads[change.version] = head
        moments.append(Moment(change, head, parent))
    return moments


def _target(change: Change, snapshots: Mapping[str, int]) -> int:
    """The version that a rollback went to: that of its snapshot, or the one that its label names; -1 if unknown."""
    if change.snapshot:
        return snapshots.get(change.snapshot, -1)
    number = (change.label or "").removeprefix("version ")
    return int(number) if number.isdecimal() else -1


def taken_at(changes: Iterable[Change], snapshots: Iterable[Snapshot]) -> dict[str, int]:
    """The version at which each snapshot was taken; deleted snapshots included, as far as the changes go."""
    return {one.id: one.version for one in snapshots} | {
        change.snapshot: change.version for change in changes if change.kind == "snapshot" and change.snapshot
    }


def on_path(moments: Sequence[Moment]) -> frozenset[int]:
    """The turns on the path to the present head."""
    parents = {moment.version: moment.parent for moment in moments if moment.is_turn}
    path: set[int] = set()
    turn = moments[-1].head if moments else None
    while turn is not None and turn in parents and turn not in path:
        path.add(turn)
        turn = parents[turn]
    return frozenset(path)


def tips(moments: Iterable[Moment]) -> list[int]:
    """The turns that no other follows: the end of each branch."""
    turns = [moment for moment in moments if moment.is_turn]
    followed = {moment.parent for moment in turns}
    return [moment.version for moment in turns if moment.version not in followed]


def columns(moments: Sequence[Moment]) -> dict[int, int]:
    """The column of each turn: 0 for the path to the head; for every other branch the first column that is free from
    its tip down to the turn where it left another branch."""
    order = {moment.version: place for place, moment in enumerate(moments)}
    parents = {moment.version: moment.parent for moment in moments if moment.is_turn}
    assigned = dict.fromkeys(on_path(moments), 0)
    taken: list[list[tuple[int, int]]] = [[(0, len(moments))]]  # of each column, the rows in use
    for tip in sorted(tips(moments), reverse=True):
        branch: list[int] = []
        turn: int | None = tip
        while turn in parents and turn not in assigned:
            branch.append(turn)
            turn = parents[turn]
        if not branch:
            continue
        left_at = turn if turn in order else branch[-1]
        span = order[left_at], order[tip]
        free = (column for column, used in enumerate(taken) if not any(_overlap(span, one) for one in used))
        column = next(free, len(taken))
        taken += [[]] * (column == len(taken))
        taken[column] = [*taken[column], span]
        assigned.update(dict.fromkeys(branch, column))
    return assigned


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


# --- a graph in text -------------------------------------------------------------------------------------------------


class GraphLine(msgspec.Struct, frozen=True):
    """A line of the graph: the columns as text, and its moment (None: a line that only joins columns)."""

    drawn: str
    moment: Moment | None = None


def graph(moments: Sequence[Moment]) -> list[GraphLine]:
    """Draw the moments newest first, with a column for each branch, as `git log --graph` draws commits."""
    rows: list[GraphLine] = []
    columns: list[int | None] = []  # the turn each column leads down to
    for moment in reversed(moments):
        here = moment.version if moment.is_turn else moment.head
        if here is not None and here in columns:
            column = columns.index(here)
        else:
            columns.append(here)
            column = len(columns) - 1
        if moment.is_turn:
            rows += _joined(columns, column, here)
        marks = ["|"] * len(columns)
        marks[column] = "*" if moment.is_turn else "o"
        rows.append(GraphLine(" ".join(marks), moment))
        if moment.is_turn:
            columns[column] = moment.parent
            if moment.parent in {0, None}:
                del columns[column]
    return rows


def _joined(columns: list[int | None], column: int, turn: int | None) -> list[GraphLine]:
    """Join every other column that leads to this turn with its column; the columns right of it move left."""
    rows: list[GraphLine] = []
    for other in reversed(range(column + 1, len(columns))):
        if columns[other] != turn:
            continue
        drawn = list("| " * len(columns))
        for crossed in range(column + 1, other):
            drawn[2 * crossed - 1] = "_"
        for moved in range(other, len(columns)):
            drawn[2 * moved - 1], drawn[2 * moved] = "/", " "
        rows.append(GraphLine("".join(drawn).rstrip()))
        del columns[other]
    return rows
