"""Corruption is loud: damage done behind the store's back is never an empty history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from everturn import ChatMessage, CorruptEntry, Record, Summary, ToolCall
from tests.store.places import Editor, Place, Stored
from tests.store.speech import say_each, user, words

Damage = Callable[[Editor], None]
Damaged = Callable[[Damage], Any]


@pytest.fixture
def damaged(lasting: Place) -> Damaged:
    """Writes a session "a" of five messages and more, closes it, damages it by the editor, and opens it again."""

    def write_and_damage(damage: Damage) -> Any:
        store = lasting.open()
        say_each(store, "a", *"12345")
        store.append("a", [ToolCall("f", {"x": "y"}), Summary("s", [1.0, 2.0], (1, 2)), Record("r", {"x": 1})])
        say_each(store, "bystander", "x")
        store.close()
        damage(lasting.editor)
        return lasting.open()

    return write_and_damage


def rewrite(seq: int, change: Callable[[Stored], Stored]) -> Damage:
    return lambda editor: editor.put_entry("a", seq, change(editor.entry("a", seq)))


FLIPPED = rewrite(3, lambda entry: replace(entry, body=entry.body.replace(b"3", b"4")))
IN_BODY = {
    "a flipped byte": FLIPPED,
    "half a body": rewrite(3, lambda entry: replace(entry, body=entry.body[:10])),
    "an empty body": rewrite(3, lambda entry: replace(entry, body=b"")),
    "a body that is no text": rewrite(3, lambda entry: replace(entry, body=b"\xff\x00\xfe")),
    "a wrong checksum": rewrite(3, lambda entry: replace(entry, checksum=entry.checksum + 1)),
    "a deleted row": lambda editor: editor.drop_entry("a", 3),
}
IN_KIND = {
    "a changed kind": rewrite(3, lambda entry: replace(entry, kind="tool_call")),
    "a kind nobody knows": rewrite(3, lambda entry: replace(entry, kind="message ")),
}
DAMAGES: dict[str, Damage] = IN_BODY | IN_KIND
every_damage = pytest.mark.parametrize("damage", list(DAMAGES))


FRONT_DAMAGES: dict[str, tuple[int, Damage]] = {
    "a system message at the beginning": (
        1,
        rewrite(1, lambda one: replace(one, body=one.body.replace(b"rule", b"rude"))),
    ),
    "a lost message at the beginning": (2, lambda editor: editor.drop_entry("a", 2)),
    "the latest": (31, rewrite(31, lambda one: replace(one, body=one.body[:10]))),
}


@pytest.mark.parametrize("damage", list(FRONT_DAMAGES))
def test_a_context_whose_front_is_damaged_raises(lasting: Place, damage: str) -> None:
    store = lasting.open()
    store.add_messages("a", [ChatMessage("system", "rule")])
    say_each(store, "a", *map(str, range(30)))
    store.close()
    seq, change = FRONT_DAMAGES[damage]
    change(lasting.editor)
    with pytest.raises(CorruptEntry) as caught:
        lasting.open().get_context("a", max_messages=5)
    assert (caught.value.session_id, caught.value.seq) == ("a", seq)


def folded(lasting: Place) -> int:
    """Write a session that a fold has shortened. Returns the seq of its summary."""
    store = lasting.open()
    say_each(store, "a", *"1234567890")
    receipt = store.fold("a", lambda *_: "so far", max_messages=6)
    say_each(store, "a", *"abcdefgh")
    store.close()
    (seq,) = receipt.seqs
    return int(seq)


def test_a_context_whose_summary_is_damaged_raises(lasting: Place) -> None:
    seq = folded(lasting)
    rewrite(seq, lambda one: replace(one, body=one.body.replace(b"so far", b"so fun")))(lasting.editor)
    with pytest.raises(CorruptEntry):
        lasting.open().get_context("a", max_messages=3)


def test_a_summary_of_a_fold_that_is_lost_is_missed(lasting: Place) -> None:
    seq = folded(lasting)
    lasting.editor.drop_entry("a", seq)
    store = lasting.open()
    assert store.verify("a").problems
    with pytest.raises(CorruptEntry):
        store.get_summaries("a")


@every_damage
def test_a_damaged_message_raises(damaged: Damaged, damage: str) -> None:
    store = damaged(DAMAGES[damage])
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("a")
    assert caught.value.session_id == "a"
    assert "'a'" in str(caught.value)
    assert "kind" in damage or caught.value.seq == 3


WINDOWS: list[dict[str, int]] = [{"limit": 4}, {"after": 1}, {"before": 5}, {"after": 2, "before": 4}]


@pytest.mark.parametrize("damage", list(IN_BODY))
def test_a_damaged_message_raises_in_a_window_too(damaged: Damaged, damage: str) -> None:
    store = damaged(DAMAGES[damage])
    for window in WINDOWS:
        with pytest.raises(CorruptEntry):
            store.get_history("a", **window)


@pytest.mark.where(notices_kinds=True)
@pytest.mark.parametrize("damage", list(IN_KIND))
def test_a_changed_kind_raises_in_a_window_too(damaged: Damaged, damage: str) -> None:
    test_a_damaged_message_raises_in_a_window_too(damaged, damage)


@every_damage
def test_a_damaged_message_raises_in_the_state(damaged: Damaged, damage: str) -> None:
    store = damaged(DAMAGES[damage])
    for read in (store.state, store.load_memory):
        with pytest.raises(CorruptEntry):
            read("a")


@every_damage
def test_verify_finds_the_damage(damaged: Damaged, damage: str) -> None:
    report = damaged(DAMAGES[damage]).verify()
    assert not report.ok
    assert {problem.session_id for problem in report.problems} == {"a"}
    assert 3 in {problem.seq for problem in report.problems}


@every_damage
def test_the_caller_may_skip_what_is_damaged(damaged: Damaged, damage: str) -> None:
    assert words(damaged(DAMAGES[damage]), "a", on_corrupt="skip") == ["1", "2", "4", "5"]


@every_damage
def test_damage_in_one_session_is_none_in_another(damaged: Damaged, damage: str) -> None:
    store = damaged(DAMAGES[damage])
    assert words(store, "bystander") == ["x"]
    assert store.verify("bystander").ok


def test_the_raw_bytes_stay(damaged: Damaged, lasting: Place) -> None:
    store = damaged(FLIPPED)
    for _ in range(2):
        with pytest.raises(CorruptEntry):
            store.get_history("a")
    store.get_history("a", on_corrupt="skip")
    store.verify()
    assert b'"4"' in lasting.editor.entry("a", 3).body


def test_what_comes_behind_the_damage_can_be_read(damaged: Damaged) -> None:
    assert words(damaged(FLIPPED), "a", after=3) == ["4", "5"]


def test_one_can_go_on_writing_behind_the_damage(damaged: Damaged) -> None:
    store = damaged(FLIPPED)
    assert say_each(store, "a", "6")[0].seqs == (9,)
    assert words(store, "a", on_corrupt="skip") == ["1", "2", "4", "5", "6"]


def test_a_trim_does_not_hide_damage_unseen(damaged: Damaged) -> None:
    store = damaged(FLIPPED)
    with pytest.raises(CorruptEntry):
        store.trim("a", max_messages=1)


def test_a_search_over_damage_raises(damaged: Damaged) -> None:
    store = damaged(rewrite(3, lambda entry: replace(entry, body=entry.body.replace(b"user", b"used"))))
    with pytest.raises(CorruptEntry):
        store.find("3", session_id="a")


# --- other entries -------------------------------------------------------------------------------------------------


OTHERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "tool call": (6, lambda store: store.get_tool_calls("a")),
    "summary": (7, lambda store: store.get_summaries("a")),
    "searched summary": (7, lambda store: store.search_summaries("a", [1.0, 2.0])),
    "record": (8, lambda store: store.state("a")),
}


every_other = pytest.mark.parametrize("other", list(OTHERS))


def damage_other(damaged: Damaged, other: str, change: Callable[[Stored], Stored] | None) -> None:
    seq, read = OTHERS[other]
    store = damaged(rewrite(seq, change) if change else lambda editor: editor.drop_entry("a", seq))
    with pytest.raises(CorruptEntry):
        read(store)
    assert not store.verify("a").ok


@every_other
@pytest.mark.parametrize(
    "change",
    [
        lambda entry: replace(entry, body=entry.body.replace(b'"', b"'")),
        lambda entry: replace(entry, checksum=entry.checksum + 1),
        None,
    ],
    ids=["flipped", "checksum", "deleted"],
)
def test_damage_to_an_entry_that_is_no_message_raises(damaged: Damaged, other: str, change: Any) -> None:
    damage_other(damaged, other, change)


@pytest.mark.where(notices_kinds=True)
@every_other
@pytest.mark.parametrize("kind", ["other", "message"])
def test_a_changed_kind_of_what_is_no_message_raises(damaged: Damaged, other: str, kind: str) -> None:
    damage_other(damaged, other, lambda entry: replace(entry, kind=kind))


WRITTEN = {3: "message", 6: "tool_call", 7: "summary", 8: "r"}
KINDS = ("message", "tool_call", "summary", "other")


@pytest.mark.parametrize(("seq", "kind"), [(seq, kind) for seq in WRITTEN for kind in KINDS if kind != WRITTEN[seq]])
def test_a_changed_kind_raises_where_all_is_read(damaged: Damaged, seq: int, kind: str) -> None:
    store = damaged(rewrite(seq, lambda entry: replace(entry, kind=kind)))
    assert not store.verify("a").ok
    with pytest.raises(CorruptEntry):
        store.state("a")


# --- parts that disagree ---------------------------------------------------------------------------------------------

DISAGREEMENTS: dict[str, Damage] = {
    "a head beyond the log": lambda editor: editor.set_state("a", head=99),
    "a head beyond the log and its end": lambda editor: editor.set_state("a", head=99, last_seq=99),
    "a head at nothing": lambda editor: editor.set_state("a", head=0),
    "a head too early": lambda editor: editor.set_state("a", head=2),
    "a missing log": lambda editor: editor.drop_log("a"),
    "a floor too high": lambda editor: editor.set_state("a", floor=4),
    "cleared too high": lambda editor: editor.set_state("a", cleared=8, floor=8),
    "a wrong count": lambda editor: editor.set_state("a", messages=4),
    "a jump that was not": lambda editor: editor.add_jump("a", 4, after=1),
}
every_disagreement = pytest.mark.parametrize("what", list(DISAGREEMENTS))


@every_disagreement
def test_parts_that_disagree_are_corruption_and_no_shorter_history(damaged: Damaged, what: str) -> None:
    store = damaged(DISAGREEMENTS[what])
    with pytest.raises(CorruptEntry):
        store.get_history("a")


@every_disagreement
def test_verify_finds_parts_that_disagree(damaged: Damaged, what: str) -> None:
    report = damaged(DISAGREEMENTS[what]).verify("a")
    assert not report.ok


@every_disagreement
def test_the_state_of_parts_that_disagree_is_corruption(damaged: Damaged, what: str) -> None:
    with pytest.raises(CorruptEntry):
        damaged(DISAGREEMENTS[what]).state("a")


def test_verify_names_a_head_far_beyond_the_log_in_few_words(damaged: Damaged) -> None:
    report = damaged(lambda editor: editor.set_state("a", head=300_000)).verify("a")
    assert not report.ok
    assert len(report.problems) < 1000


def test_verify_finds_a_snapshot_that_points_nowhere(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    store.close()
    lasting.editor.move_snapshots("a", head=77)
    problems = lasting.open().verify("a").problems
    assert any(snapshot.id in problem.what for problem in problems)


def test_verify_finds_an_undo_step_that_points_nowhere(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    store.clear("a")
    store.close()
    lasting.editor.move_undo_steps("a", head=77)
    assert any("undo" in problem.what for problem in lasting.open().verify("a").problems)


def test_verify_finds_a_jump_that_leads_forward(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    store.replace("a", [user("3")], after=1)
    store.close()
    lasting.editor.add_jump("a", 3, after=9)
    assert not lasting.open().verify("a").ok


def test_verify_finds_a_gap_in_the_change_log(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2", "3")
    store.close()
    lasting.editor.drop_change("a", 2)
    assert not lasting.open().verify("a").ok


def test_verify_finds_entries_of_no_session(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    say_each(store, "b", "1")
    store.close()
    lasting.editor.drop_session("a")
    (problem,) = lasting.open().verify().problems
    assert problem.session_id in (None, "a")  # some backends can still tell whose they are


def test_verify_finds_what_only_a_snapshot_can_reach(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    store.replace("a", [user("4")])
    store.close()
    lasting.editor.drop_entry("a", 2)
    store = lasting.open()
    assert words(store, "a") == ["4"]
    assert [problem.seq for problem in store.verify("a").problems if problem.seq] == [2]
    with pytest.raises(CorruptEntry):
        store.get_history("a", at=snapshot)


def test_verify_of_a_healthy_store_counts_and_finds_nothing(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    say_each(store, "b", "1")
    store.replace("a", [user("4")], after=1)
    report = store.verify()
    assert (report.ok, report.sessions, report.entries, report.problems) == (True, 2, 5, ())
    assert store.verify("a").entries == 4


def test_verify_of_an_absent_session_finds_nothing(store: Any) -> None:
    report = store.verify("nobody")
    assert (report.ok, report.entries) == (True, 0)


@every_damage
def test_verify_does_not_advise_to_verify(damaged: Damaged, damage: str) -> None:
    problems = damaged(DAMAGES[damage]).verify().problems
    assert problems
    assert not [problem.what for problem in problems if "verify" in problem.what]
