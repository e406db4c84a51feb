"""Replace after a fold or a trim: what stays hidden stays summarised, in the one request that moves the head back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from everturn import CorruptEntry, InvalidInput, KeyReused, LeaseLost, MemoryStoreBackendError, Summary, VersionConflict
from everturn.backend import ChangeOutcome, Status
from tests.store.places import Clock, Place
from tests.store.speech import result, say, say_each, system, user, words
from tests.store.test_corruption import rewrite


def folded(store: Any, session_id: str = "a", *, keep: int = 3, **options: Any) -> None:
    """Ten turns, of which the oldest are hidden behind a summary of their words (seq 11)."""
    say_each(store, session_id, *"0123456789")
    fold(store, session_id, keep, **options)


def fold(store: Any, session_id: str, keep: int, **options: Any) -> None:
    def summarize(messages: list[Any], earlier: Summary | None) -> str:
        return "".join([earlier.text if earlier else "", *(message.text for message in messages)])

    assert store.fold(session_id, summarize, max_messages=keep, **options) is not None


def texts(store: Any, session_id: str = "a") -> list[str]:
    return [summary.text for summary in store.get_summaries(session_id)]


def told(store: Any, session_id: str = "a") -> list[str]:
    """The summaries of a prompt, and then its messages."""
    context = store.get_context(session_id)
    return [*(summary.text for summary in context.summaries), *(one.text for one in context.messages if one.seq)]


@contextmanager
def sent(store: Any) -> Iterator[list[Status]]:
    """Collects what the backend answers to changes."""
    backend = store._operations.backend
    real, answers = backend.change, list[Status]()

    async def change(request: Any, deadline: float) -> Any:
        outcome = await real(request, deadline)
        answers.append(outcome.status)
        return outcome

    backend.change = change
    try:
        yield answers
    finally:
        del backend.change


@contextmanager
def before_each_read(store: Any, *steps: Callable[[], Any]) -> Iterator[None]:
    """Takes a step before each of the next reads of summaries, behind the plan that is made of it."""
    backend = store._operations.backend
    real, left = backend.read, list(steps)

    async def read(query: Any, take: Any, deadline: float) -> Any:
        reading = await real(query, take, deadline)
        if query.kind == "summary" and left:
            step = left.pop(0)
            await asyncio.to_thread(step) if asyncio._get_running_loop() else step()
        return reading

    backend.read = read
    try:
        yield
    finally:
        del backend.read
    assert not left


# --- what stays ------------------------------------------------------------------------------------------------------


def test_the_receipt_of_a_replace_names_the_entries_of_the_caller_only(store: Any) -> None:
    folded(store)
    receipt = store.replace("a", [user("again"), user("and")], after=9)
    assert told(store) == ["0123456", "7", "8", "again", "and"]
    assert (receipt.version, len(receipt.seqs), receipt.replayed) == (12, 2, False)
    assert [message.seq for message in store.get_history("a")][-2:] == list(receipt.seqs)
    change = store.changes("a", 1)[0]
    assert (change.kind, change.seqs) == ("replace", receipt.seqs)
    assert (store.info("a").messages, len(store.state("a").entries)) == (4, 5)
    assert store.verify().ok


def test_one_undo_takes_all_of_it_back(store: Any) -> None:
    folded(store)
    before = store.state("a").entries
    store.replace("a", [user("again")], after=9)
    store.undo("a")
    assert store.state("a").entries == before
    store.undo("a")
    assert (words(store, "a"), texts(store)) == (list("0123456789"), [])
    assert store.verify().ok


def test_a_replace_by_nothing_keeps_the_summary(store: Any) -> None:
    folded(store)
    receipt = store.replace("a", [], after=9)
    assert (receipt.seqs, store.changes("a", 1)[0].seqs) == ((), ())
    assert told(store) == ["0123456", "7", "8"]
    assert store.verify().ok
    say(store, "a", "next")
    assert told(store) == ["0123456", "7", "8", "next"]
    assert store.verify().ok


def test_a_summary_is_kept_however_often_the_answer_is_asked_for_again(store: Any) -> None:
    folded(store)
    for number in range(5):
        store.replace("a", [user(f"again {number}")], after=9)
        assert told(store) == ["0123456", "7", "8", f"again {number}"]
    assert len(texts(store)) == 1
    fold(store, "a", 1)
    assert told(store) == ["012345678", "again 4"]
    assert store.verify().ok


def test_the_copy_of_a_summary_stands_before_the_new_turn(store: Any) -> None:
    """So the next replace of that turn need not write it again, and drops nothing."""
    folded(store)
    receipt = store.replace("a", [user("again")], after=9)
    with sent(store) as answers:
        store.replace("a", [user("once more")], after=receipt.seqs[0] - 1)
    assert answers == [Status.APPLIED]
    assert told(store) == ["0123456", "7", "8", "once more"]


def test_a_replace_that_drops_no_summary_is_one_request(store: Any) -> None:
    say_each(store, "b", "1", "2")
    store.add_summary("b", Summary("of what is in view", [1.0], (1, 1)))
    folded(store)
    say_each(store, "a", "10", "11")
    with sent(store) as answers:
        store.replace("b", [user("x")], after=1)
        store.replace("a", [user("x")], after=12)
        store.replace("a", [user("x")])
    assert answers == [Status.APPLIED] * 3
    assert (texts(store, "b"), texts(store)) == ([], [])
    assert words(store, "a") == ["x"]


def test_an_embedding_is_found_once(store: Any) -> None:
    folded(store, embed=lambda _: [1.0, 0.0])
    store.add_summary("a", Summary("another", [0.0, 1.0], (8, 9)))
    store.replace("a", [user("again")], after=9)
    (hit,) = store.search_summaries("a", [1.0, 0.0])
    assert (hit.summary.text, hit.summary.covers, hit.score) == ("0123456", (1, 7), 1.0)
    assert [match.entry.text for match in store.find("0123456", session_id="a")] == ["0123456"]
    with pytest.raises(InvalidInput, match="embedding"):
        store.add_summary("a", Summary("another length", [1.0], (1, 1)))


def test_all_of_a_summary_is_kept(store: Any) -> None:
    say_each(store, "a", *"0123")
    store.fold("a", lambda *_: Summary("mine", [0.25], (0, 0), extra={"model": "m"}), max_messages=2)
    (before,) = store.get_summaries("a")
    store.replace("a", [user("again")], after=3)
    (after,) = store.get_summaries("a")
    assert (after, after.extra) == (before, {"model": "m", "fold": True})


def test_a_summary_that_was_added_after_a_trim_is_kept(store: Any) -> None:
    say_each(store, "a", *"01234")
    store.trim("a", max_messages=2)
    store.add_summary("a", Summary("what was trimmed", [1.0], (1, 3)))
    store.add_summary("a", Summary("what is in view", [1.0], (4, 5)))
    store.add_summary("a", Summary("of both", [1.0], (2, 5)))
    store.replace("a", [user("again")], after=4)
    assert texts(store) == ["what was trimmed", "of both"]
    assert told(store) == ["what was trimmed", "3", "again"]


def test_of_several_folds_the_summaries_in_force_are_kept(store: Any) -> None:
    folded(store, keep=6)
    fold(store, "a", 3)
    assert texts(store) == ["0123", "0123456"]
    store.replace("a", [user("again")], after=9)
    assert texts(store) == ["0123456"]
    assert told(store) == ["0123456", "7", "8", "again"]
    say_each(store, "a", "x", "y")
    fold(store, "a", 1)
    assert told(store) == ["012345678againx", "y"]


def test_a_summary_of_a_fold_that_was_undone_is_not_brought_back(store: Any) -> None:
    folded(store, keep=6)
    fold(store, "a", 3)
    say(store, "a", "next")
    store.undo("a")  # the summary stays on the path, out of view
    store.replace("a", [user("again")], after=9)
    assert texts(store) == ["0123"]
    assert told(store) == ["0123", *"45678", "again"]


def test_a_summary_that_the_caller_writes_itself_is_not_doubled(store: Any) -> None:
    folded(store)
    (summary,) = store.get_summaries("a")
    receipt = store.replace("a", [user("again"), summary], after=9)
    assert len(receipt.seqs) == 2
    assert texts(store) == ["0123456"]
    assert told(store) == ["0123456", "7", "8", "again"]
    store.replace("a", [Summary("better", None, (1, 9), extra={"fold": True})], after=9)
    assert texts(store) == ["0123456"]  # one that also stands for what is in view does not take its place
    store.replace("a", [Summary("better", None, (1, 7), extra={"fold": True})], after=9)
    assert texts(store) == ["better"]


def test_tool_calls_and_their_results_stay_together(store: Any) -> None:
    folded(store, keep=2)
    store.replace("a", [result("c")], after=9)
    context = store.get_context("a")
    assert [message.role for message in context.messages] == ["system", "user"]  # healed: no call has this result


# --- after an entry that is hidden -----------------------------------------------------------------------------------


def test_after_nothing_no_summary_is_kept(store: Any) -> None:
    folded(store)
    store.replace("a", [user("new")])
    assert (words(store, "a"), texts(store), told(store)) == (["new"], [], ["new"])
    assert store.verify().ok


def test_after_a_hidden_entry_the_narrowest_summary_is_kept(store: Any) -> None:
    folded(store, keep=7)  # 0 to 2 are hidden
    fold(store, "a", 3)  # 0 to 6
    store.replace("a", [user("again")], after=2)
    assert told(store) == ["012", "again"]
    store.undo("a")
    store.replace("a", [user("again")], after=3)
    assert told(store) == ["012", "again"]
    store.undo("a")
    store.replace("a", [user("again")], after=5)  # it tells of hidden turns that are gone, too
    assert told(store) == ["0123456", "again"]
    assert store.get_summaries("a")[-1].covers == (1, 7)
    say_each(store, "a", "x", "y")
    fold(store, "a", 1)
    assert told(store) == ["0123456againx", "y"]
    assert store.verify().ok


def test_a_summary_of_hidden_entries_that_go_is_not_kept(store: Any) -> None:
    say_each(store, "a", *"0123456")
    store.trim("a", max_messages=2)
    store.add_summary("a", Summary("first", [1.0], (1, 2)))
    store.add_summary("a", Summary("second", [1.0], (4, 5)))
    store.replace("a", [user("again")], after=3)
    assert (texts(store), told(store)) == (["first"], ["first", "again"])


def test_system_messages_that_a_fold_kept_stay_in_view_up_to_the_place(store: Any) -> None:
    store.add_messages("a", [system("s"), user("0")])
    say_each(store, "a", *"123456")
    fold(store, "a", 3)  # the system message, and two more
    store.replace("a", [user("again")], after=1)
    assert told(store) == ["s", "again"]  # nothing that is hidden stays
    store.undo("a")
    store.replace("a", [user("again")], after=2)
    assert told(store) == ["01234", "s", "again"]
    assert store.verify().ok


def test_what_a_clear_hid_is_not_summarised_again(store: Any) -> None:
    folded(store)
    store.clear("a")
    say_each(store, "a", "x", "y", "z")
    store.add_summary("a", Summary("of what was cleared", [1.0], (1, 7)))
    with sent(store) as answers:
        store.replace("a", [user("again")], after=12)
        store.undo("a")
        store.replace("a", [user("again")], after=3)
    assert Status.SUMMARY_DROPPED not in answers
    assert (words(store, "a"), texts(store), told(store)) == (["again"], [], ["again"])


# --- keys, versions, leases ------------------------------------------------------------------------------------------


def test_a_repeat_with_the_key_has_the_first_receipt(store: Any) -> None:
    folded(store)
    first = store.replace("a", [user("again")], after=9, key="k")
    again = store.replace("a", [user("again")], after=9, key="k")
    assert (again.version, again.seqs, again.replayed) == (first.version, first.seqs, True)
    turn = store.get_turn("a", "k")
    assert (turn.receipt.seqs, turn.entries) == (first.seqs, (user("again"),))
    with pytest.raises(KeyReused) as reused:
        store.replace("a", [user("other")], after=9, key="k")
    assert reused.value.receipt.seqs == first.seqs
    assert told(store) == ["0123456", "7", "8", "again"]


def test_a_repeat_finds_its_turn_though_the_next_replace_moved_the_summary_again(store: Any) -> None:
    folded(store)
    first = store.replace("a", [user("again")], after=9, key="k")
    say(store, "a", "next")
    fold(store, "a", 2)
    store.replace("a", [user("other")], after=first.seqs[-1])
    assert told(store) == ["012345678", "again", "other"]
    assert store.replace("a", [user("again")], after=9, key="k").seqs == first.seqs
    store.replace("a", [], after=9)
    assert store.get_turn("a", "k") is None


def test_a_repeat_of_a_replace_by_nothing_has_the_first_receipt(store: Any) -> None:
    folded(store)
    first = store.replace("a", [], after=9, key="k")
    again = store.replace("a", [], after=9, key="k")
    assert (again.version, again.seqs, again.replayed) == (first.version, (), True)
    assert store.get_turn("a", "k").entries == ()
    store.replace("a", [user("x")], after=8)
    assert store.replace("a", [], after=9, key="k").replayed
    assert told(store) == ["0123456", "7", "x"]


def test_a_lost_reply_does_not_replace_twice(store: Any) -> None:
    folded(store)
    backend = store._operations.backend
    real, applied = backend.change, []

    async def losing(request: Any, deadline: float) -> Any:
        outcome = await real(request, deadline)
        if outcome.status is Status.APPLIED:
            applied.append(outcome)
            raise MemoryStoreBackendError("the reply was lost", outcome="unknown", transient=True)
        return outcome

    backend.change = losing
    try:
        receipt = store.replace("a", [user("again")], after=9)
    finally:
        del backend.change
    assert (receipt.replayed, receipt.seqs, len(applied)) == (True, (13,), 1)
    assert told(store) == ["0123456", "7", "8", "again"]
    assert store.verify().ok


def test_another_version_than_the_expected_is_refused(store: Any) -> None:
    folded(store)
    state = store.state("a")
    say(store, "a", "next")
    before = store.state("a")
    with pytest.raises(VersionConflict) as refused:
        store.replace("a", [user("again")], after=9, expected_version=state)
    assert (refused.value.expected, refused.value.actual) == (state.version, before.version)
    assert store.state("a") == before
    store.replace("a", [user("again")], after=9, expected_version=before)
    assert told(store) == ["0123456", "7", "8", "again"]
    receipt = store.undo("a")
    store.replace("a", [user("by number")], after=9, expected_version=receipt.version)
    assert told(store) == ["0123456", "7", "8", "by number"]


def test_a_lost_lease_is_refused(store: Any) -> None:
    folded(store)
    with store.lease("a") as lease:
        store.replace("a", [user("again")], after=9, lease=lease)
    before = store.state("a")
    with pytest.raises(LeaseLost):
        store.replace("a", [user("and again")], after=9, lease=lease)
    assert store.state("a") == before
    assert told(store) == ["0123456", "7", "8", "again"]


def test_a_replace_that_keeps_a_summary_renews_the_session(store: Any, clock: Clock) -> None:
    folded(store)
    store.set_ttl("a", 100)
    clock.advance(60)
    store.replace("a", [user("again")], after=9)
    clock.advance(60)
    assert told(store) == ["0123456", "7", "8", "again"]


# --- races -----------------------------------------------------------------------------------------------------------


def test_it_is_planned_again_if_another_turn_came_between(store: Any) -> None:
    folded(store)
    with before_each_read(store, lambda: say(store, "a", "x"), lambda: say(store, "a", "y")):
        store.replace("a", [user("again")], after=9)
    assert told(store) == ["0123456", "7", "8", "again"]
    assert store.changes("a", 3)[2].kind == "append"
    store.undo("a")
    assert words(store, "a") == ["7", "8", "9", "x", "y"]


def test_it_is_planned_again_if_another_fold_came_between(store: Any) -> None:
    folded(store, keep=6)
    with before_each_read(store, lambda: fold(store, "a", 3)):
        store.replace("a", [user("again")], after=9)
    assert told(store) == ["0123456", "7", "8", "again"]
    assert store.verify().ok


def test_it_is_a_conflict_if_another_turn_came_between_and_a_version_was_expected(store: Any) -> None:
    folded(store)
    state = store.state("a")
    with (
        before_each_read(store, lambda: say(store, "a", "x")),
        pytest.raises(VersionConflict) as refused,
    ):
        store.replace("a", [user("again")], after=9, expected_version=state)
    assert (refused.value.expected, refused.value.actual) == (state.version, state.version + 1)
    assert words(store, "a") == ["7", "8", "9", "x"]


def test_a_key_that_another_worker_used_meanwhile_is_a_replay(store: Any) -> None:
    folded(store)
    state = store.state("a")
    first: list[Any] = []

    def other() -> None:
        first.append(store.replace("a", [user("again")], after=9, key="k"))

    with before_each_read(store, other):
        receipt = store.replace("a", [user("again")], after=9, key="k", expected_version=state)
    assert (receipt.replayed, receipt.seqs, receipt.version) == (True, first[0].seqs, first[0].version)
    assert told(store) == ["0123456", "7", "8", "again"]


def test_a_session_that_was_erased_meanwhile_is_not_replaced(store: Any) -> None:
    folded(store)
    with (
        before_each_read(store, lambda: store.erase("a")),
        pytest.raises(InvalidInput, match="after"),
    ):
        store.replace("a", [user("again")], after=9)
    assert store.sessions().sessions == ()


def test_a_session_that_never_stands_still_is_told(one_store: Any) -> None:
    folded(one_store)
    before = one_store.state("a")
    operations = one_store._operations
    change, clock, passed = operations.backend.change, operations.runtime.clock, 0.0

    async def busy(request: Any, deadline: float) -> Any:
        nonlocal passed
        if request.action.carried is None:
            return await change(request, deadline)
        passed += operations.settings.timeout / 3
        return ChangeOutcome(Status.CONFLICT, before.life, before.version + 1)

    operations.backend.change, operations.runtime.clock = busy, lambda: clock() + passed
    try:
        with pytest.raises(MemoryStoreBackendError, match="again and again") as refused:
            one_store.replace("a", [user("again")], after=9)
    finally:
        del operations.backend.change, operations.runtime.clock
    assert refused.value.outcome == "not_written"
    assert one_store.state("a") == before


# --- beside it -------------------------------------------------------------------------------------------------------


def test_snapshots_rollbacks_and_diffs_see_the_summary(store: Any) -> None:
    folded(store)
    before = store.save_snapshot("a")
    store.replace("a", [user("again")], after=9)
    after = store.save_snapshot("a")
    diff = store.diff("a", before, after)
    assert [getattr(entry, "text", None) for entry in diff.added] == ["0123456", "again"]
    assert [getattr(entry, "text", None) for entry in diff.removed] == ["9", "0123456"]
    store.rollback_to_snapshot("a", before)
    assert told(store) == ["0123456", "7", "8", "9"]
    store.rollback_to_snapshot("a", after)
    assert told(store) == ["0123456", "7", "8", "again"]
    assert store.verify().ok


@pytest.mark.parametrize("after", [5, 9])
def test_forks_and_compactions_keep_the_summary(store: Any, after: int) -> None:
    folded(store)
    store.replace("a", [user("again")], after=after)
    before = told(store)
    assert before[0] == "0123456"
    store.compact("a", drop_undo=True)
    store.fork("a", "b")
    for name in ("a", "b"):
        assert told(store, name) == before
        say(store, name, "next")
        assert told(store, name) == [*before, "next"]
        fold(store, name, 1)
        assert told(store, name) == ["".join(before), "next"]
        assert store.verify(name).ok


def test_a_replace_by_nothing_after_a_hidden_entry_hides_nothing_of_a_fork(store: Any) -> None:
    say_each(store, "a", *"01234")
    store.trim("a", max_messages=1)
    store.replace("a", [], after=2)
    store.fork("a", "b")
    say_each(store, "b", "x", "y", "z")
    assert words(store, "b") == ["x", "y", "z"]
    assert store.verify().ok


def test_a_damaged_summary_is_neither_kept_nor_dropped(lasting: Place) -> None:
    store = lasting.open()
    folded(store)
    before = store.info("a").version
    store.close()
    rewrite(11, lambda one: replace(one, body=one.body.replace(b"012", b"210")))(lasting.editor)
    store = lasting.open()
    with pytest.raises(CorruptEntry):
        store.replace("a", [user("again")], after=9)
    assert store.info("a").version == before
    assert words(store, "a", on_corrupt="skip") == ["7", "8", "9"]


def test_a_summary_that_is_lost_is_missed(lasting: Place) -> None:
    store = lasting.open()
    folded(store)
    store.close()
    lasting.editor.drop_entry("a", 11)
    store = lasting.open()
    with pytest.raises(CorruptEntry):
        store.replace("a", [user("again")], after=9)
