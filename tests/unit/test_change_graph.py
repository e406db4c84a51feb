"""What a change log tells about heads and branches, against what the store itself says at every version."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

import everturn
from everturn import ChatMessage, MemoryStore
from everturn.errors import MemoryStoreError
from everturn.model import Change
from everturn.ui import change_graph
from everturn.ui.change_graph import Moment
from tests.tiers import examples

STEPS = st.lists(st.tuples(st.sampled_from("aaasrruutcxffv"), st.integers(0, 9)), max_size=25)


def take(store: MemoryStore, step: str, number: int) -> None:
    """One step of a session's life; what makes no sense here is refused, and changes nothing."""
    snapshots = store.list_snapshots("s")
    history = store.get_history("s")
    match step:
        case "a":
            store.add_messages("s", [ChatMessage("user", "x")] * (1 + number % 2))
        case "s":
            store.save_snapshot("s")
        case "r" if snapshots:
            store.rollback_to_snapshot("s", snapshots[number % len(snapshots)])
        case "u":
            store.undo("s", expected_version=store.info("s").version)
        case "t":
            store.trim("s", max_messages=number)
        case "c":
            store.clear("s")
        case "f":
            store.fold("s", lambda *_: "so far", max_messages=1 + number % 3)
        case "v":
            store.rollback("s", number)
        case "x" if history:
            store.replace("s", [ChatMessage("user", "y")], after=history[number % len(history)].seq or 0)


def told_by(store: MemoryStore) -> list[Moment]:
    def after(change: Change, latest: int | None) -> int | None:
        assert latest is not None
        before = [entry.seq or 0 for entry in store.state("s", at=change.version).entries if (entry.seq or 0) <= latest]
        return before[-1] if before else 0

    taken = {change.snapshot: change.version for change in store.changes("s", limit=1000) if change.kind == "snapshot"}
    return change_graph.place_changes(
        store.changes("s", limit=1000), {name: at for name, at in taken.items() if name}, after
    )


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
@example([("a", 0), ("a", 0), ("f", 0), ("x", 0)])  # the replace carries the summary of the fold along
def test_every_moment_stands_where_the_store_says(steps: list[tuple[str, int]]) -> None:
    with everturn.open("sqlite://") as store:
        for step, number in steps:
            try:
                take(store, step, number)
            except MemoryStoreError:
                pass
        moments = told_by(store)
        parents = {moment.version: moment.parent for moment in moments if moment.is_turn}
        wrote = {moment.version: moment.change.seqs for moment in moments if moment.is_turn}
        named = {seq for seqs in wrote.values() for seq in seqs}  # all but summaries that a replace carried along
        for moment in moments:
            path: list[int] = []
            turn = moment.head
            while turn:
                path = [*wrote[turn], *path]
                turn = parents[turn]
            shown = [entry.seq for entry in store.state("s", at=moment.version).entries if entry.seq in named]
            # Trims and clears hide a part of the path; what is shown is on it, in order, and ends where it ends.
            assert [seq for seq in path if seq in shown] == shown
            if shown and not hides(moments, moment):
                assert path[-1] == shown[-1]
        drawn = [row.moment.version for row in change_graph.graph(moments) if row.moment]
        assert drawn == [moment.version for moment in reversed(moments)]


def hides(moments: list[Moment], last: Moment) -> bool:
    return any(moment.change.kind in {"trim", "clear"} for moment in moments if moment.version <= last.version)


def change(version: int, kind: str, *seqs: int, snapshot: str | None = None) -> Change:
    return Change(version, kind, seqs, 0.0, snapshot)


def test_a_log_that_begins_late_says_what_it_cannot_know() -> None:
    moments = change_graph.place_changes([change(9, "rollback", snapshot="old"), change(8, "append", 20)], {"old": 3})
    assert [(moment.version, moment.head, moment.parent) for moment in moments] == [(8, 8, None), (9, None, None)]
    assert change_graph.on_path(moments) == frozenset()


def test_an_empty_log_draws_nothing() -> None:
    assert change_graph.place_changes([], {}) == []
    assert change_graph.graph([]) == []


def test_lanes_cross_where_branches_join() -> None:
    log = [
        change(8, "append", 6),
        change(7, "rollback", snapshot="b"),
        change(6, "append", 5),
        change(5, "rollback", snapshot="a"),
        change(4, "append", 3),
        change(3, "snapshot", snapshot="b"),
        change(2, "append", 2),
        change(1, "append", 1),
    ]
    moments = change_graph.place_changes(log, {"a": 1, "b": 3})
    assert [row.drawn for row in change_graph.graph(moments)] == [
        "*",
        "o",
        "| *",
        "| o",
        "| | *",
        "o | |",
        "|_|/",
        "* |",
        "|/",
        "*",
    ]
    assert change_graph.on_path(moments) == {8, 2, 1}
    assert change_graph.tips(moments) == [4, 6, 8]
