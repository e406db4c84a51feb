"""Computes the path to a head: the ranges of seqs that are a session's history, and the entries that states can reach.

No IO, no clock, no randomness; nothing here knows how or where entries are stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from everturn.core import branches
from everturn.core.branches import Branches

Range: TypeAlias = branches.Range
Jump: TypeAlias = branches.Jump


class State(msgspec.Struct, frozen=True, gc=False):
    """State of a session: which entries of its log are its history. Its size does not grow with the history.

    The path ends at `head`. Of the entries on it, those up to `cleared` are hidden; those up to `floor` are
    hidden too (`trim`), but for summaries, which stand for them, and the system messages in `kept`.
    """

    head: int = 0
    cleared: int = 0
    floor: int = 0
    kept: tuple[int, ...] = ()
    messages: int = 0  # how many of the visible entries are messages


def path(head: int, jumps: Iterable[Jump]) -> list[Range]:
    """Compute the ranges of seqs that lead to `head`, in order.

    An entry follows the one before it in the log, except where a jump says otherwise: the first entry after the
    head was moved. `jumps` are those of the session, newest first; a jump past the head is not on the way.
    """
    ranges: list[Range] = []
    for seq, after in jumps:
        if seq <= head:
            ranges.append((seq, head))
            head = after
    if head > 0:
        ranges.append((1, head))
    ranges.reverse()
    return ranges


def clip(ranges: Iterable[Range], low: int, high: int) -> list[Range]:
    """Cut the ranges to the part from `low` to `high`, both included."""
    clipped = ((max(first, low), min(last, high)) for first, last in ranges)
    return [(first, last) for first, last in clipped if first <= last]


def size(ranges: Iterable[Range]) -> int:
    """Count the seqs in the ranges."""
    return sum([last - first + 1 for first, last in ranges])


def contains(ranges: Iterable[Range], seq: int) -> bool:
    """Whether the seq is in one of the ranges."""
    return any(first <= seq <= last for first, last in ranges)


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that overlap or touch: as few ranges as possible, in order."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def minus(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Subtract `others` from `ranges`. The result is in order. One pass over both."""
    left: list[Range] = []
    cuts = merge(others)
    index = 0
    for first, last in merge(ranges):
        while index < len(cuts) and cuts[index][1] < first:
            index += 1
        position, start = index, first
        while position < len(cuts) and cuts[position][0] <= last:
            if start < cuts[position][0]:
                left.append((start, cuts[position][0] - 1))
            start = max(start, cuts[position][1] + 1)
            position += 1
        if start <= last:
            left.append((start, last))
    return left


class Reach(msgspec.Struct, frozen=True, gc=False):
    """Entries that some states show: `whole` ranges of the log, and the `summaries` in other ranges.

    `jumps` are those on the paths of the states. A path goes on below hidden entries, so a jump may be on it though it
    leads to hidden entries only.
    """

    whole: list[Range]
    summaries: list[Range]
    jumps: list[Jump]


def reach(states: Iterable[State], jumps: Iterable[Jump]) -> Reach:
    """Collect the entries that any of these states shows. The work grows with states plus jumps, not their product.

    It goes from the newest stretch of the log to the oldest. Each stretch has demands: a seq up to which it is shown,
    and the floor and cleared of a state. A demand comes from a state whose head is in the stretch, or from a stretch
    that follows it. All paths that leave a stretch go on at the same entry of its parent. So the stretch makes one
    demand of its parent: with the lowest floor and the lowest cleared of its own demands, which show the most.
    """
    log = Branches(jumps)
    demands: list[list[tuple[int, int, int]]] = [[] for _ in log.firsts]  # up to which seq, floor, cleared
    kept: set[int] = set()
    for state in states:
        demands[log.stretch_of(state.head)].append((state.head, state.floor, state.cleared))
        kept.update(state.kept)
    whole = [(seq, seq) for seq in kept]
    summaries: list[Range] = []
    on_the_way: list[Jump] = []
    for stretch in reversed(range(len(demands))):
        if not demands[stretch]:
            continue
        first = max(1, log.firsts[stretch])
        for head, floor, cleared in demands[stretch]:
            whole += clip([(first, head)], floor + 1, head)
            summaries += clip([(first, head)], cleared + 1, floor)
        if stretch:
            _, floors, cleareds = zip(*demands[stretch], strict=True)
            after = log.afters[stretch]
            demands[log.parents[stretch]].append((after, min(floors), min(cleareds)))
            on_the_way.append((log.firsts[stretch], after))
    shown = merge(whole)
    return Reach(shown, minus(summaries, shown), on_the_way)


def out_of(needed: Reach, states: Sequence[State], jumps: Iterable[Jump]) -> list[bool]:
    """Tell for each state whether it shows an entry that is not within `needed`."""
    log = Branches(jumps)
    whole = log.gaps(needed.whole)
    anything = log.gaps(merge([*needed.whole, *needed.summaries]))
    starts = [first for first, _ in needed.whole]

    def is_needed(seq: int) -> bool:
        at = bisect_right(starts, seq) - 1
        return at >= 0 and seq <= needed.whole[at][1]

    return [
        whole(state.head) > state.floor or anything(state.head) > state.cleared or not all(map(is_needed, state.kept))
        for state in states
    ]
