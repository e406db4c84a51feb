"""Corruption is loud: damage done behind the store's back, by another process, is never an empty history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import CorruptEntry, Record, Summary, ToolCall
from tests.contract.places import File
from tests.contract.speech import Backdoor, say_each, user, words


@pytest.fixture
def damaged(lasting: File, backdoor: Backdoor) -> Callable[..., Any]:
    """Writes a session "a" of five messages and more, closes it, runs a statement on the file, and opens it again."""

    def damage(statement: str) -> Any:
        store = lasting.open()
        say_each(store, "a", *"12345")
        store.append("a", [ToolCall("f", {"x": "y"}), Summary("s", [1.0, 2.0], (1, 2)), Record("r", {"x": 1})])
        say_each(store, "bystander", "x")
        store.close()
        backdoor.sql(lasting.path, statement)
        return lasting.open()

    return damage


def at(seq: int) -> str:
    return f"id = (SELECT no << 32 FROM sessions WHERE session_id = 'a') + {seq}"


FLIPPED = f"UPDATE entries SET body = replace(body, '3', '4') WHERE {at(3)}"
DAMAGES = {
    "a flipped byte": FLIPPED,
    "half a body": f"UPDATE entries SET body = substr(body, 1, 10) WHERE {at(3)}",
    "an empty body": f"UPDATE entries SET body = '' WHERE {at(3)}",
    "a body that is no text": f"UPDATE entries SET body = CAST(x'ff00fe' AS TEXT) WHERE {at(3)}",
    "a wrong checksum": f"UPDATE entries SET checksum = checksum + 1 WHERE {at(3)}",
    "a deleted row": f"DELETE FROM entries WHERE {at(3)}",
    "a changed kind": f"UPDATE entries SET kind = 'tool_call' WHERE {at(3)}",
    "a kind nobody knows": f"UPDATE entries SET kind = 'message ' WHERE {at(3)}",
}
every_damage = pytest.mark.parametrize("damage", list(DAMAGES))


@every_damage
def test_a_damaged_message_raises(damaged: Callable[..., Any], damage: str) -> None:
    store = damaged(DAMAGES[damage])
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("a")
    assert caught.value.session_id == "a"
    assert "'a'" in str(caught.value)
    assert "kind" in damage or caught.value.seq == 3


@every_damage
def test_a_damaged_message_raises_in_a_window_too(damaged: Callable[..., Any], damage: str) -> None:
    store = damaged(DAMAGES[damage])
    for window in ({"limit": 4}, {"after": 1}, {"before": 5}, {"after": 2, "before": 4}):
        with pytest.raises(CorruptEntry):
            store.get_history("a", **window)


@every_damage
def test_a_damaged_message_raises_in_the_state(damaged: Callable[..., Any], damage: str) -> None:
    store = damaged(DAMAGES[damage])
    for read in (store.state, store.load_memory):
        with pytest.raises(CorruptEntry):
            read("a")


@every_damage
def test_verify_finds_the_damage(damaged: Callable[..., Any], damage: str) -> None:
    report = damaged(DAMAGES[damage]).verify()
    assert not report.ok
    assert {problem.session_id for problem in report.problems} == {"a"}
    assert 3 in {problem.seq for problem in report.problems}


@every_damage
def test_the_caller_may_skip_what_is_damaged(damaged: Callable[..., Any], damage: str) -> None:
    assert words(damaged(DAMAGES[damage]), "a", on_corrupt="skip") == ["1", "2", "4", "5"]


@every_damage
def test_damage_in_one_session_is_none_in_another(damaged: Callable[..., Any], damage: str) -> None:
    store = damaged(DAMAGES[damage])
    assert words(store, "bystander") == ["x"]
    assert store.verify("bystander").ok


def test_the_raw_bytes_stay(damaged: Callable[..., Any], lasting: File, backdoor: Backdoor) -> None:
    store = damaged(FLIPPED)
    for _ in range(2):
        with pytest.raises(CorruptEntry):
            store.get_history("a")
    store.get_history("a", on_corrupt="skip")
    store.verify()
    assert '"4"' in backdoor.sql(lasting.path, f"SELECT body FROM entries WHERE {at(3)}")


def test_what_comes_behind_the_damage_can_be_read(damaged: Callable[..., Any]) -> None:
    assert words(damaged(FLIPPED), "a", after=3) == ["4", "5"]


def test_one_can_go_on_writing_behind_the_damage(damaged: Callable[..., Any]) -> None:
    store = damaged(FLIPPED)
    assert say_each(store, "a", "6")[0].seqs == (9,)
    assert words(store, "a", on_corrupt="skip") == ["1", "2", "4", "5", "6"]


def test_a_trim_does_not_hide_damage_unseen(damaged: Callable[..., Any]) -> None:
    store = damaged(FLIPPED)
    with pytest.raises(CorruptEntry):
        store.trim("a", max_messages=1)


def test_a_search_over_damage_raises(damaged: Callable[..., Any]) -> None:
    store = damaged(f"UPDATE entries SET body = replace(body, 'user', 'used') WHERE {at(3)}")
    with pytest.raises(CorruptEntry):
        store.find("3", session_id="a")


# --- other entries -------------------------------------------------------------------------------------------------


OTHERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "tool call": (6, lambda store: store.get_tool_calls("a")),
    "summary": (7, lambda store: store.get_summaries("a")),
    "searched summary": (7, lambda store: store.search_summaries("a", [1.0, 2.0])),
    "record": (8, lambda store: store.state("a")),
}


@pytest.mark.parametrize("other", list(OTHERS))
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET body = replace(body, '\"', '''') WHERE ",
        "UPDATE entries SET checksum = checksum + 1 WHERE ",
        "UPDATE entries SET kind = 'other' WHERE ",
        "UPDATE entries SET kind = 'message' WHERE ",
        "DELETE FROM entries WHERE ",
    ],
    ids=["flipped", "checksum", "kind", "message", "deleted"],
)
def test_damage_to_an_entry_that_is_no_message_raises(damaged: Callable[..., Any], other: str, damage: str) -> None:
    seq, read = OTHERS[other]
    store = damaged(damage + at(seq))
    with pytest.raises(CorruptEntry):
        read(store)
    assert not store.verify("a").ok


# --- parts that disagree ---------------------------------------------------------------------------------------------

DISAGREEMENTS = {
    "a head beyond the log": "UPDATE sessions SET head = 99 WHERE session_id = 'a'",
    "a head beyond the log and its end": "UPDATE sessions SET head = 99, last_seq = 99 WHERE session_id = 'a'",
    "a head at nothing": "UPDATE sessions SET head = 0 WHERE session_id = 'a'",
    "a head too early": "UPDATE sessions SET head = 2 WHERE session_id = 'a'",
    "a missing log": "DELETE FROM entries WHERE id >> 32 = (SELECT no FROM sessions WHERE session_id = 'a')",
    "a floor too high": "UPDATE sessions SET floor = 4 WHERE session_id = 'a'",
    "cleared too high": "UPDATE sessions SET cleared = 8, floor = 8 WHERE session_id = 'a'",
    "a wrong count": "UPDATE sessions SET messages = 4 WHERE session_id = 'a'",
    "a jump that was not": f"INSERT INTO jumps (id, after) VALUES ({at(4).removeprefix('id = ')}, 1)",
}
every_disagreement = pytest.mark.parametrize("what", list(DISAGREEMENTS))


@every_disagreement
def test_parts_that_disagree_are_corruption_and_no_shorter_history(damaged: Callable[..., Any], what: str) -> None:
    store = damaged(DISAGREEMENTS[what])
    with pytest.raises(CorruptEntry):
        store.get_history("a")


@every_disagreement
def test_verify_finds_parts_that_disagree(damaged: Callable[..., Any], what: str) -> None:
    report = damaged(DISAGREEMENTS[what]).verify("a")
    assert not report.ok


@every_disagreement
def test_the_state_of_parts_that_disagree_is_corruption(damaged: Callable[..., Any], what: str) -> None:
    with pytest.raises(CorruptEntry):
        damaged(DISAGREEMENTS[what]).state("a")


def test_verify_names_a_head_far_beyond_the_log_in_few_words(damaged: Callable[..., Any]) -> None:
    report = damaged("UPDATE sessions SET head = 300000 WHERE session_id = 'a'").verify("a")
    assert not report.ok
    assert len(report.problems) < 1000


def test_verify_finds_a_snapshot_that_points_nowhere(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    store.close()
    backdoor.sql(lasting.path, "UPDATE snapshots SET head = 77")
    problems = lasting.open().verify("a").problems
    assert any(snapshot.id in problem.what for problem in problems)


def test_verify_finds_an_undo_step_that_points_nowhere(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    store.clear("a")
    store.close()
    backdoor.sql(lasting.path, "UPDATE undo_steps SET head = 77")
    assert any("undo" in problem.what for problem in lasting.open().verify("a").problems)


def test_verify_finds_a_jump_that_leads_forward(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    store.replace("a", [user("3")], after=1)
    store.close()
    backdoor.sql(lasting.path, "UPDATE jumps SET after = 9")
    assert not lasting.open().verify("a").ok


def test_verify_finds_a_gap_in_the_change_log(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2", "3")
    store.close()
    backdoor.sql(lasting.path, "DELETE FROM changes WHERE version = 2")
    assert not lasting.open().verify("a").ok


def test_verify_finds_entries_of_no_session(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    say_each(store, "b", "1")
    store.close()
    backdoor.sql(lasting.path, "DELETE FROM sessions WHERE session_id = 'a'")
    (problem,) = lasting.open().verify().problems
    assert problem.session_id is None


def test_verify_finds_what_only_a_snapshot_can_reach(lasting: File, backdoor: Backdoor) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    store.replace("a", [user("4")])
    store.close()
    backdoor.sql(lasting.path, f"DELETE FROM entries WHERE {at(2)}")
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
