"""Sessions that were edited hundreds of times: nothing is shown wrongly, and nothing costs more for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import apsw
import pytest

from everturn import Record, Summary, VersionConflict
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.database import Database
from tests.store.places import File, Place
from tests.store.speech import say, user, words

EDITS = 150
START = ["1", "2", "3"]


def replaced(store: Any, edits: int = EDITS) -> None:
    """The last turn is edited again and again."""
    say(store, "a", *START)
    for number in range(edits):
        store.replace("a", [user(f"edit {number}"), user("b")], after=3)


def rolled_back(store: Any, edits: int = EDITS) -> None:
    """A rollback to one snapshot, and a turn, again and again."""
    say(store, "a", *START)
    snapshot = store.save_snapshot("a")
    for number in range(edits):
        store.rollback_to_snapshot("a", snapshot)
        say(store, "a", f"edit {number}", "b")


def with_snapshots(store: Any, edits: int = EDITS) -> None:
    """The last turn is edited, and a snapshot taken of it, again and again."""
    say(store, "a", *START)
    for number in range(edits):
        store.replace("a", [user(f"edit {number}"), user("b")], after=3)
        store.save_snapshot("a")


MANNERS = [replaced, rolled_back, with_snapshots]
by_any = pytest.mark.parametrize("edit", MANNERS)


@by_any
def test_a_session_edited_often_shows_its_latest_edit(store: Any, edit: Callable[[Any], None]) -> None:
    edit(store)
    latest = f"edit {EDITS - 1}"
    assert words(store, "a") == [*START, latest, "b"]
    assert words(store, "a", limit=2) == [latest, "b"]
    assert words(store, "a", limit=3) == ["3", latest, "b"]
    first = store.get_history("a", limit=2)[0].seq
    assert words(store, "a", before=first) == START
    assert words(store, "a", after=3) == [latest, "b"]
    assert words(store, "a", at=store.info("a").version) == [*START, latest, "b"]
    assert store.verify("a").ok


@by_any
def test_a_session_edited_often_is_changed_like_any_other(store: Any, edit: Callable[[Any], None]) -> None:
    edit(store)
    latest = f"edit {EDITS - 1}"
    snapshot = store.save_snapshot("a")
    say(store, "a", "more", key="k")
    assert say(store, "a", "more", key="k").replayed
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == [*START, latest, "b"]
    assert not say(store, "a", "more", key="k").replayed
    with pytest.raises(VersionConflict):
        store.undo("a")
    store.undo("a", expected_version=store.info("a").version)
    assert words(store, "a")[-1] == "more"
    store.trim("a", max_messages=1)
    assert words(store, "a") == ["more"]
    store.undo("a")
    assert len(words(store, "a")) == 6
    store.fork("a", "b")
    assert words(store, "b") == words(store, "a")
    store.clear("a")
    assert words(store, "a") == []
    assert [change.kind for change in store.changes("a", limit=2)] == ["clear", "undo"]
    assert store.verify().ok


@by_any
def test_compact_of_a_session_edited_often_leaves_what_can_be_reached(store: Any, edit: Callable[[Any], None]) -> None:
    edit(store)
    before = store.state("a")
    snapshots = store.list_snapshots("a")
    seen = [words(store, "a", at=snapshot) for snapshot in snapshots]
    freed = store.compact("a")
    # Ten edits can be returned to by undo, and one is the latest; each has two messages.
    assert freed.entries == (0 if edit is with_snapshots else 2 * (EDITS - 11))
    assert store.state("a") == before
    assert [words(store, "a", at=snapshot) for snapshot in snapshots] == seen
    assert store.compact("a").entries == 0
    say(store, "a", "on")
    assert words(store, "a")[-2:] == ["b", "on"]
    store.undo("a", expected_version=store.info("a").version)
    assert store.verify("a").ok


def test_a_history_of_many_ranges_is_read_from_either_end_and_in_the_middle(store: Any) -> None:
    texts, seqs, after = [], [], 0
    for number in range(EDITS):
        kinds = [Record("r", number)] if number % 10 == 9 else []
        receipt = store.replace("a", [user(str(number)), *kinds, user("regretted")], after=after)
        after = receipt.seqs[len(kinds)]
        seqs.append(receipt.seqs[0])
        texts.append(str(number))
    store.replace("a", [], after=after)
    assert words(store, "a") == texts
    assert words(store, "a", limit=7) == texts[-7:]
    assert words(store, "a", before=seqs[50], limit=5) == texts[45:50]
    assert words(store, "a", after=seqs[50], before=seqs[60]) == texts[51:60]
    assert [entry.body for entry in store.state("a", kind="r").entries] == list(range(9, EDITS, 10))
    store.append("a", [Summary("the first half", [1.0], (1, seqs[70]))])
    store.trim("a", max_messages=5)
    assert words(store, "a") == texts[-5:]
    assert [summary.text for summary in store.get_summaries("a")] == ["the first half"]
    store.fork("a", "b")
    assert words(store, "b") == texts[-5:]
    store.replace("a", [user("earlier")], after=seqs[3])  # hidden, but on the path
    assert words(store, "a") == ["earlier"]
    assert store.verify().ok


def test_a_history_whose_every_answer_was_given_three_times_is_read_whole(store: Any) -> None:
    after, texts = 0, []
    for number in range(EDITS // 2):
        for attempt in ("bad", "worse"):
            store.replace("a", [user(attempt)], after=after)
        (after,) = store.replace("a", [user(str(number))], after=after).seqs
        texts.append(str(number))
    assert words(store, "a") == texts
    assert words(store, "a", limit=5) == texts[-5:]
    assert words(store, "a", before=after, limit=60) == texts[-61:-1]
    prompt = store.get_context("a", max_messages=60)
    assert [message.text for message in prompt.messages] == texts[-60:]
    store.fold("a", lambda *_: "the first turns", max_messages=5)
    assert [message.text for message in store.get_context("a").messages[1:]] == texts[-5:]
    assert store.verify().ok


# --- what it costs: SQLite tells how many steps its machine took -----------------------------------------------------


class Steps:
    """Counts the steps of SQLite's virtual machine, on every connection that is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = Database._connect

        def connected(database: Database, deadline: float) -> Connection:
            db = connect(database, deadline)
            db.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._profile)
            return db

        monkeypatch.setattr(Database, "_connect", connected)

    def _profile(self, event: dict[str, Any]) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def of(self, call: Callable[[], Any]) -> int:
        before = self.count
        call()
        return self.count - before


def costs_after(store: Any, steps: Steps) -> dict[str, int]:
    """The steps of each operation on session "a". None of them returns more for the edits that were made."""
    head = store.info("a").last_seq
    snapshot = store.save_snapshot("a", "here")
    say(store, "a", "keyed", key="k")

    def undo() -> None:
        store.rollback_to_snapshot("a", snapshot)
        store.undo("a")

    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: say(store, "a", "x"),
        "latest": lambda: words(store, "a", limit=3),
        "history": lambda: words(store, "a"),
        "tool calls": lambda: store.get_tool_calls("a"),
        "summaries": lambda: store.get_summaries("a"),
        "changes": lambda: store.changes("a", limit=20),
        "find": lambda: store.find("keyed", session_id="a"),
        "retry": lambda: say(store, "a", "keyed", key="k"),
        "replace": lambda: store.replace("a", [user("y")], after=head),
        "snapshot": lambda: store.save_snapshot("a"),
        "undo": undo,
        "trim": lambda: store.trim("a", max_messages=3),
        "fork": lambda: store.fork("a", f"fork of {head}"),
        "clear": lambda: store.clear("a"),
        "cleared history": lambda: words(store, "a"),
    }
    return {name: steps.of(call) for name, call in calls.items()}


@by_any
def test_ten_times_the_edits_cost_no_more_steps(
    file: File, edit: Callable[[Any, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    store = file.open()
    edit(store, 40)
    few = costs_after(store, steps)
    store.erase("a")
    edit(store, 400)
    many = costs_after(store, steps)
    assert min(few.values()) > 0
    # B-trees are a level deeper, and ids a little further apart.
    assert {name: (few[name], many[name]) for name in many if many[name] > 1.3 * few[name] + 100} == {}


def test_the_latest_of_many_ranges_cost_no_more_steps_than_of_few(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    store = file.open()
    costs = {}
    for ranges in (30, 300):
        after = 0
        for number in range(ranges):
            after = store.replace(str(ranges), [user(str(number)), user("regretted")], after=after).seqs[0]
        costs[ranges] = (
            steps.of(lambda name=str(ranges): words(store, name, limit=5)),
            steps.of(lambda name=str(ranges), after=after: store.replace(name, [user("x")], after=after)),
        )
    assert costs[300][0] <= costs[30][0] + 50
    assert costs[300][1] <= costs[30][1] + 50


def lines_of(call: Callable[[], Any]) -> int:
    """How many lines of Python a call takes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_compact_and_verify_think_of_each_edit_and_not_of_each_pair(file: File) -> None:
    store = file.open()
    lines: dict[int, tuple[int, int]] = {}
    for edits in (40, 400):
        with_snapshots(store, edits)
        lines[edits] = lines_of(lambda: store.verify("a")), lines_of(lambda: store.compact("a"))
        store.erase("a")
    assert lines[400][0] < 15 * lines[40][0]
    assert lines[400][1] < 15 * lines[40][1]


def test_jumps_to_branches_that_are_gone_go_with_them(file: File) -> None:
    store = file.open()
    replaced(store)
    assert _jumps(file) == EDITS - 1
    store.compact("a")
    assert _jumps(file) == 11  # ten steps of undo, and the latest edit
    assert words(store, "a") == [*START, f"edit {EDITS - 1}", "b"]
    assert store.verify("a").ok


def _jumps(place: Place) -> int:
    ((count,),) = place.editor._sql("SELECT count(*) FROM jumps")
    return int(count)
