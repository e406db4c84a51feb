"""Paths, ranges and reach against a walk from entry to entry."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everturn.core import paths
from everturn.core.branches import Branches
from tests.unit.examples import few, many


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """For each seq from 1 on, the seq it follows; 0 is the beginning."""
    length = draw(st.integers(0, 25))
    return [draw(st.integers(0, seq - 1)) if draw(st.integers(0, 3)) == 0 else seq - 1 for seq in range(1, length + 1)]


def walk(parents: list[int], head: int) -> list[int]:
    seqs = []
    while head:
        seqs.append(head)
        head = parents[head - 1]
    return seqs[::-1]


def seqs_in(ranges: list[paths.Range]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


@many
@given(parents=logs(), data=st.data())
def test_a_path_is_what_a_walk_from_parent_to_parent_finds(parents: list[int], data: st.DataObject) -> None:
    head = data.draw(st.integers(0, len(parents)))
    jumps = [(seq, after) for seq, after in enumerate(parents, 1) if after != seq - 1][::-1]
    found = paths.path(head, jumps)
    assert seqs_in(found) == walk(parents, head)
    assert all(first <= last for first, last in found)
    assert paths.path(head, [jump for jump in jumps if jump[0] <= head]) == found
    # A jump that only says what is so anyway changes nothing but how the path is cut into ranges.
    every = [(seq, after) for seq, after in enumerate(parents, 1)][::-1]
    assert seqs_in(paths.path(head, every)) == walk(parents, head)


@st.composite
def states_of(draw: st.DrawFn, parents: list[int]) -> paths.State:
    """A state of such a log: some of what leads to its head is hidden, but for what a trim kept."""
    head = draw(st.integers(0, len(parents)))
    floor = draw(st.one_of(st.integers(0, head), st.just(head)))
    hidden = [seq for seq in walk(parents, head) if seq <= floor]
    kept = draw(st.lists(st.sampled_from(hidden), unique=True)) if hidden else []
    return paths.State(head, draw(st.one_of(st.integers(0, floor), st.just(floor))), floor, tuple(sorted(kept)))


def shown_by(parents: list[int], state: paths.State) -> tuple[set[int], set[int]]:
    """The seqs that a state shows, and those that it shows if they are summaries."""
    path = walk(parents, state.head)
    whole = {seq for seq in path if seq > state.floor} | set(state.kept)
    return whole, {seq for seq in path if state.cleared < seq <= state.floor} - whole


def jumps_of(parents: list[int]) -> list[paths.Jump]:
    return [(seq, after) for seq, after in enumerate(parents, 1) if after != seq - 1][::-1]


@many
@given(parents=logs(), data=st.data())
def test_the_reach_of_states_is_what_each_of_them_shows(parents: list[int], data: st.DataObject) -> None:
    states = data.draw(st.lists(states_of(parents), max_size=6))
    found = paths.reach(states, jumps_of(parents))
    shown = [shown_by(parents, state) for state in states]
    whole = set().union(*(seqs for seqs, _ in shown))
    assert seqs_in(found.whole) == sorted(whole)
    assert seqs_in(found.summaries) == sorted(set().union(*(seqs for _, seqs in shown)) - whole)
    on_the_way = {seq for state in states for seq in walk(parents, state.head)}
    assert found.jumps == [jump for jump in jumps_of(parents) if jump[0] in on_the_way]


@many
@given(parents=logs(), data=st.data())
def test_a_state_is_out_of_reach_if_it_shows_what_others_do_not(parents: list[int], data: st.DataObject) -> None:
    roots = data.draw(st.lists(states_of(parents), max_size=4))
    states = data.draw(st.lists(states_of(parents), max_size=4))
    jumps = jumps_of(parents)
    needed = paths.reach(roots, jumps)
    whole, summaries = set(seqs_in(needed.whole)), set(seqs_in(needed.summaries))
    for state, is_out in zip(states, paths.out_of(needed, states, jumps), strict=True):
        shows, shows_summaries = shown_by(parents, state)
        assert is_out == bool(shows - whole or shows_summaries - whole - summaries)
        # The jumps on the way to a state are all that is needed to walk there.
        assert paths.path(state.head, paths.reach([state], jumps).jumps) == paths.path(state.head, jumps)


@many
@given(parents=logs(), data=st.data())
def test_questions_about_a_path_need_no_walk(parents: list[int], data: st.DataObject) -> None:
    log = Branches(jumps_of(parents))
    head, seq = (data.draw(st.integers(0, len(parents))) for _ in range(2))
    some = sorted(data.draw(st.sets(st.integers(1, len(parents) + 1))))
    path = walk(parents, head)
    assert log.nearest(head, seq) == max((one for one in path if one <= seq), default=0)
    assert log.tally(some)(head) == len(set(some).intersection(path))
    gaps = log.gaps(paths.merge([(one, one) for one in some]))
    assert gaps(head) == max((one for one in path if one not in some), default=0)


def test_the_way_to_a_far_ancestor_is_short() -> None:
    """A history whose every entry is a stretch of its own: 4,000 questions about its beginning take no time."""
    log = Branches([(seq, seq - 1) for seq in range(2, 4001)])
    steps = 0

    class Counted(list[int]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal steps
            steps += 1
            return super().__getitem__(at)

    log.parents = Counted(log.parents)
    log._skips = Counted(log._skips)
    assert all(log.nearest(4000, seq) == seq for seq in range(1, 4000))
    assert steps < 4000 * 60


def test_the_reach_of_many_states_over_many_jumps_takes_no_product() -> None:
    """10,000 branches, each with a state of its own, and all of them once more: a product would take minutes."""
    jumps = [(seq, 1) for seq in range(10_001, 1, -1)]
    states = [paths.State(seq) for seq in range(1, 10_002)]
    assert paths.reach(states + states, jumps).whole == [(1, 10_001)]


ranges_of_any_kind = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)).map(lambda r: (r[0], r[0] + r[1])))
bounds = st.integers(0, 15)


@many
@given(ranges=ranges_of_any_kind, low=bounds, high=bounds)
def test_clip_keeps_what_lies_between(ranges: list[paths.Range], low: int, high: int) -> None:
    assert seqs_in(paths.clip(ranges, low, high)) == [seq for seq in seqs_in(ranges) if low <= seq <= high]


@many
@given(ranges=ranges_of_any_kind, low=bounds, high=bounds)
def test_a_clip_has_no_empty_or_inverted_ranges(ranges: list[paths.Range], low: int, high: int) -> None:
    assert all(first <= last for first, last in paths.clip(ranges, low, high))


@many
@given(ranges=ranges_of_any_kind)
def test_merge_is_the_same_set_in_the_fewest_ranges(ranges: list[paths.Range]) -> None:
    merged = paths.merge(ranges)
    assert seqs_in(merged) == sorted(set(seqs_in(ranges)))
    assert all(b[0] > a[1] + 1 for a, b in pairwise(merged))


@many
@given(ranges=ranges_of_any_kind, others=ranges_of_any_kind)
def test_minus_is_the_difference_of_sets(ranges: list[paths.Range], others: list[paths.Range]) -> None:
    left = paths.minus(ranges, others)
    assert seqs_in(left) == sorted(set(seqs_in(ranges)) - set(seqs_in(others)))
    assert all(first <= last for first, last in left)


@few
@given(ranges=ranges_of_any_kind, seq=bounds)
def test_size_and_contains_count_and_find(ranges: list[paths.Range], seq: int) -> None:
    assert paths.size(ranges) == len(seqs_in(ranges))
    assert paths.contains(ranges, seq) == (seq in seqs_in(ranges))
